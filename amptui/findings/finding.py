"""What amptui diagnoses, in the words that its JSON, its screen and its report share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

Severity = Literal["fault", "notice"]
Kind = Literal[
    "overflow",
    "underflow",
    "rounding",
    "decision",
    "dtype",
    "autocast_state",
    "not_precision",
    "randomness",
    "scaler",
    "state_damage",
    "loop_order",
    "checkpoint",
]
Stage = Literal[
    "input",
    "forward",
    "loss",
    "backward",
    "gradient",
    "scaler",
    "update",
    "scheduler",
    "buffer",
    "weights",
    "output",
    "decision",
    "checkpoint",
    "loop",
    "error",
]

#: Along the path of one iteration; consequences come after their cause.
STAGES: tuple[Stage, ...] = Stage.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One diagnosed fact: what kind, where, on what evidence, and what to do.

    `severity` is `fault` where something must change (project, data, policy, loop) before the run can be trusted;
    a fault excludes the verdict accept. A `notice` is explained and needs nothing.
    """

    kind: Kind
    severity: Severity
    stage: Stage
    #: The trial's first bad iteration, the 0-based index of an evaluation case, or None.
    step: int | None = None
    #: Id of the evaluation case, or None.
    case: str | None = None
    #: Name of the update, or None.
    update: str | None = None
    #: Dotted module path; "" is the root or "no smaller place known"; `loss`, `decide`, `outputs` are user functions.
    module: str = ""
    #: ATen or torch name without overload, or None.
    op: str | None = None
    #: `file:line` of the user's code, or None.
    line: str | None = None
    #: True where true FP32 shows the fault neither in a replay nor in the baseline's stretch; None before a baseline.
    fp32_ok: bool | None = None
    #: Facts that led here, each one a sentence fragment.
    evidence: tuple[str, ...] = ()
    #: What mends it.
    advice: str = ""
    #: Further facts for machines: plain values by name (`fitting_scale`, `dtype`, …).
    facts: Mapping[str, object] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """The finding as the documented JSON object (non-finite floats are left to the writer)."""
        return asdict(self)


def causes_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Faults before notices, the earliest step first, and within one step the cause before its consequences."""

    def order(finding: Finding) -> tuple[bool, bool, int, int]:
        return (
            finding.severity == "notice",
            finding.step is None,
            finding.step if finding.step is not None else 0,
            STAGES.index(finding.stage),
        )

    return tuple(sorted(findings, key=order))
