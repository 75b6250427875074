"""What a row of the verdict asks and measured, in the words that the account and the report share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from amptui.findings.judgement import Criterion, Row
from amptui.findings.words import counted, percent
from amptui.report.figures import figure, name
from amptui.session.state import SessionState

ASKED: Mapping[Criterion, str] = {
    "finite": "no NaN, no infinity that FP32 does not have",
    "difference": "outputs, first loss and first gradient near FP32",
    "decision": "what the project decides stands",
    "quality": "the project's own measure does not fall too far",
    "updates": "enough updates reach the weights",
    "progress": "the late loss beside the baseline's",
}


def measured(row: Row) -> str:
    """What `limit` bounds, in its own unit: a share of the baseline's value for progress, which is said."""
    if row.measured is None:
        return ""
    if row.criterion != "progress":
        return figure(row.measured)
    if row.measured == 0.0:
        return "the same"
    return f"{'below' if row.measured < 0.0 else 'above'} by {percent(abs(row.measured))}"


def limit(row: Row) -> str:
    """The limit in the unit of `measured`."""
    share = row.criterion == "progress" and isinstance(row.limit, int | float)
    return percent(float(row.limit)) if share else figure(row.limit)  # type: ignore[arg-type]


#: What "of limit" says; screen, account and report use these words.
OF_LIMIT = "what lies beyond rtol × |FP32|, as a share of the limit (atol); up to 100 % passes"


def of_limit(measured: float, limit: float) -> float:
    """How much of its limit an output's or a loss's difference takes, in percent: up to 100 passes, also at limit 0."""
    if math.isnan(measured) or measured <= 0.0:
        return measured if math.isnan(measured) else 0.0
    share = 100.0 * (measured / limit) if limit > 0.0 else math.inf
    return min(share, 100.0) if measured <= limit else max(share, math.nextafter(100.0, math.inf))


def of_limit_text(measured: float, limit: float) -> str:
    """`of_limit` in words: "2.3 %"; what is beyond the limit never reads as 100 %."""
    share = of_limit(measured, limit)
    if not math.isfinite(share):
        return figure(share)
    text = percent(share / 100.0)
    return "over 100 %" if share > 100.0 and text == "100 %" else text


def most_of_limit(state: SessionState) -> str:
    """The case that takes most of an output's limit, and what that means; "" where no output was compared."""
    runs = [case.trial for case in state.cases.values() if case.trial is not None]
    beside = [(run.figures.case, difference) for run in runs for difference in run.differences]
    if not beside:
        return ""
    shares = [(of_limit(difference.measured, difference.limit), case) for case, difference in beside]
    place = max(range(len(shares)), key=lambda n: math.inf if math.isnan(shares[n][0]) else shares[n][0])
    case, worst = beside[place]
    return f"the most is {of_limit_text(worst.measured, worst.limit)} ({name(case)}): {OF_LIMIT}"


def made_of(rows: Sequence[Row]) -> str:
    """What the rows of one criterion are, counted, where they are of several kinds: "25 cases, their total"."""
    parts = Counter(map(_part, rows))
    if len(parts) < 2:
        return ""
    return ", ".join(
        _PARTS[part][0] if _PARTS[part][1] is None else counted(count, *_PARTS[part])
        for part, count in sorted(parts.items(), key=lambda item: list(_PARTS).index(item[0]))
    )


def _part(row: Row) -> str:
    if row.criterion == "finite":
        return "stretch" if row.case is None else "after" if row.what.endswith("after the stretch") else "output"
    if row.criterion == "decision":
        return "total" if row.case is None else "case"
    if row.criterion == "difference" and row.case is None:
        return "gradient" if is_gradient(row) else "loss"
    return "output" if row.criterion == "difference" else "row"


#: In the order in which they are told; a part without a plural is one by nature.
_PARTS: Mapping[str, tuple[str, str | None]] = {
    "output": ("output of a case", "outputs of cases"),
    "case": ("case", "cases"),
    "total": ("the number of changes", None),
    "after": ("case after the stretch", "cases after the stretch"),
    "stretch": ("update over the stretch", "updates over the stretch"),
    "loss": ("first loss", "first losses"),
    "gradient": ("first gradient", "first gradients"),
    "row": ("row", "rows"),
}


def unit_notes(rows: Iterable[Row]) -> tuple[str, ...]:
    """How the measured figures of these rows are to be read, one sentence for each kind that is among them."""
    kinds = {_kind(row) for row in rows if row.measured is not None}
    return tuple(note for kind, note in _NOTES.items() if kind in kinds)


def is_gradient(row: Row) -> bool:
    return row.criterion == "difference" and row.what.startswith("gradient")


def _kind(row: Row) -> str:
    return "gradient" if is_gradient(row) else row.criterion


_NOTES = {
    "difference": "Measured, of an output or a loss: what lies beyond rtol × |FP32|; up to the limit (atol) it passes.",
    "gradient": "Measured, of a gradient: ‖trial − FP32‖ as a share of the layer's norm in FP32.",
    "quality": "Measured, of the quality: how far it fell.",
    "progress": "Measured, of progress: the difference as a share of the FP32 loss.",
}
