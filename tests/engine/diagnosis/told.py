"""Small projects and what amptui is expected to say about them.

A fault's line is the one that ends with `# here`; a test finds it by the comment, so that the table stays readable.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Criteria, Policy, Project, Scaler, Update
from amptui.findings.finding import Finding
from amptui.project import Policy as PolicyType
from amptui.protocol.commands import RunTrial
from amptui.protocol.events import Refused, VerdictReached
from tests.engine.conducted import opened_by

Batch = dict[str, Tensor]
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Says:
    """The leading finding: what is not None is compared."""

    kind: str | tuple[str, ...]
    stage: str
    module: str | None = None
    op: str | tuple[str, ...] | None = None
    step: int | None = None
    case: str | None = None
    fp32_ok: bool = True
    severity: str = "fault"
    verdict: str = "reject"
    #: Whether the line is the one marked `# here`.
    here: bool = False
    #: Of the trip behind it: further findings of the same failure, as (kind, stage, module).
    also: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Answer:
    """A verdict with its findings, and the run for further trials."""

    reached: VerdictReached
    again: Callable[..., VerdictReached]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.reached.findings

    @property
    def faults(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "fault")

    def check(self, says: Says) -> None:
        told = "\n".join(map(brief, self.findings)) or "no finding"
        assert self.reached.verdict == says.verdict, f"{self.reached.words}\n{told}"
        leading = [f for f in self.findings if f.severity == says.severity]
        assert leading, told
        first = leading[0]
        kinds = (says.kind,) if isinstance(says.kind, str) else says.kind
        assert first.kind in kinds, told
        assert (first.stage, first.fp32_ok) == (says.stage, says.fp32_ok), told
        if says.module is not None:
            assert first.module == says.module, told
        if says.op is not None:
            assert first.op in ((says.op,) if isinstance(says.op, str) else says.op), told
        if says.step is not None:
            assert first.step == says.step, told
        assert first.case == says.case, told
        if says.here:
            assert first.line is not None, told
            file, _, number = first.line.rpartition(":")
            assert linecache.getline(file, int(number)).rstrip().endswith("# here"), told
        for kind, stage, module in says.also:
            assert any((f.kind, f.stage, f.module) == (kind, stage, module) for f in self.findings), told


def brief(finding: Finding) -> str:
    where = f"step {finding.step}" + (f" case {finding.case}" if finding.case else "")
    return (
        f"{finding.severity} {finding.kind} at {finding.stage}, {where}, {finding.module!r}.{finding.op} "
        f"({finding.line}), fp32_ok {finding.fp32_ok}: {' | '.join(finding.evidence)}"
    )


def ask(project: Project, folder: Path, monkeypatch: pytest.MonkeyPatch, **trial: object) -> Answer:
    """Baseline, criteria and trial of `project` in this process."""
    conducted = opened_by(project, folder, monkeypatch)
    conducted.judge(**trial)

    def again(**policy: object) -> VerdictReached:
        conducted.do(RunTrial(policy=policy))
        return conducted.all(VerdictReached)[-1]

    reached = conducted.all(VerdictReached)
    assert reached, [event.message for event in conducted.all(Refused)]
    return Answer(reached[-1], again)


# Projects


class Block(nn.Module):
    """Functional code in a module of its own."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Net(nn.Module):
    """`enter`, then `block`, then `head`; 4 inputs, 8 features (`enter` leaves the first 4 as they are), 3 classes."""

    def __init__(self, block: nn.Module | Function, *, width: int = 8) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.enter = nn.Linear(4, 8, bias=False)
        with torch.no_grad():
            self.enter.weight[:4] = torch.eye(4)
            self.enter.weight[4:] *= 0.1
        self.block = block if isinstance(block, nn.Module) else Block(block)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.enter(x)))


def rows(count: int = 6, *, seed: int = 5, scale: float = 1.0, width: int = 4) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) * scale


def batches(count: int = 4, **odd: Any) -> list[Batch]:
    """Batches of x (6, 4) and classes y (6,). `odd` names a batch (`b2`) and the factor or tensor of its x."""
    made = []
    for index in range(count):
        x = rows(seed=20 + index)
        other = odd.get(f"b{index}")
        if isinstance(other, Tensor):
            x = other
        elif other is not None:
            x = x * other
        made.append({"x": x, "y": torch.arange(6) % 3})
    return made


def classify(model: nn.Module, batch: Batch) -> Tensor:
    return nn.functional.cross_entropy(model(batch["x"]).float(), batch["y"])


def trained(
    model: nn.Module | dict[str, nn.Module],
    data: Sequence[Any],
    *,
    loss: Callable[[Any, Any], Any] = classify,
    dtype: str = "float16",
    lr: float = 1e-3,
    scaler: Scaler | str | None = "small",
    criteria: Criteria | None = None,
    cases: Sequence[Case] = (),
    outputs: Callable[..., Any] | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    update: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
) -> Project:
    """A project of one update. The scaler starts low, so that the first update is applied."""
    if scaler == "small":
        scaler = Scaler(init_scale=16.0) if dtype == "float16" else None
    module = model if isinstance(model, nn.Module) else nn.ModuleDict(model)
    return Project(
        model=model,
        updates=[Update(optimizer=optimizer(module.parameters(), lr=lr), loss=loss, **(update or {}))],
        batches=list(data),
        cases=list(cases),
        outputs=outputs,
        policy=PolicyType(dtype=dtype, scaler=scaler, **(policy or {})),
        criteria=criteria,
    )


def evaluated(
    model: nn.Module,
    inputs: Mapping[str, Any],
    *,
    dtype: str = "float16",
    outputs: Callable[..., Any] | None = None,
    decide: Callable[..., Any] | None = None,
    criteria: Criteria | None = None,
    autocast: bool = True,
) -> Project:
    """A project of cases alone."""
    return Project(
        model=model,
        cases=[Case(id=name, inputs=value) for name, value in inputs.items()],
        outputs=outputs,
        decide=decide,
        policy=Policy(dtype=dtype, autocast=autocast),
        criteria=criteria,
    )


def argmax(outputs: Tensor) -> list[int]:
    found: list[int] = outputs.float().argmax(-1).tolist()
    return found
