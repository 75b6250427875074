"""What a client asks of the engine."""

# ruff: noqa: PLC0414 - "as" says that these names are meant to be had from here too

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from amptui.project import Criteria
from amptui.protocol.base import Command as Command
from amptui.protocol.measuring import FindCases as FindCases
from amptui.protocol.measuring import Measure as Measure
from amptui.protocol.measuring import MeasureSeeds as MeasureSeeds
from amptui.protocol.recalling import ReplayCase as ReplayCase


@dataclass(frozen=True, kw_only=True)
class OpenProject(Command):
    """Load what `spec` names, check it, freeze batches and cases, write the FP32 checkpoint.

    `policy` and `criteria` hold only what was given on the command line or in amptui.yaml, by field name; the rest is
    the project's own. `folder` is where `spec` is to be understood (the working directory or amptui.yaml's folder).
    """

    spec: str
    folder: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    app_dir: str | None = None
    device: str | None = None
    iterations: int | None = None
    policy: Mapping[str, object] = field(default_factory=dict)
    criteria: Mapping[str, object] = field(default_factory=dict)
    #: The coarsest dtype that will be tried, for which criteria are proposed; None means the policy's.
    criteria_dtype: str | None = None
    #: Only to replay something: what the session has come to stays as it is.
    aside: bool = False


@dataclass(frozen=True, kw_only=True)
class RunBaseline(Command):
    pass


@dataclass(frozen=True, kw_only=True)
class ProposeCriteria(Command):
    """Propose once more, for the coarsest `dtype` that will be tried; only before anything is locked."""

    dtype: str


@dataclass(frozen=True, kw_only=True)
class LockCriteria(Command):
    """Lock `criteria`, or the proposal where it is None. After a trial a `reason` is required."""

    criteria: Criteria | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class RunTrial(Command):
    """Start a trial from the checkpoint. `attended` stops at a trip and lets the user step; else it runs through."""

    attended: bool = False
    policy: Mapping[str, object] = field(default_factory=dict)
    #: Repeat the frozen stretch this many times.
    extend: int = 1
    #: Whether this policy was asked for before the first trial ran: one of several side by side, no intervention.
    planned: bool = False


ConditionName = Literal["skip", "scale_drop", "nonfinite", "norm", "loss", "step", "stall"]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Where a running trial stops: `value` is a norm, a loss, a step or a number of iterations without an update."""

    name: ConditionName
    value: float | None = None


@dataclass(frozen=True, kw_only=True)
class Advance(Command):
    unit: Literal["phase", "iteration"]


@dataclass(frozen=True, kw_only=True)
class Continue(Command):
    until: Condition | None = None
    #: Whether trips are waited for; else each one is the skip that it is, until somebody pauses.
    attended: bool = True


@dataclass(frozen=True, kw_only=True)
class Pause(Command):
    pass


@dataclass(frozen=True, kw_only=True)
class Answer(Command):
    """What to do about a tripped guard: take it as the skip it is, or retry the window at the new scale."""

    choice: Literal["go_on", "retry"]


@dataclass(frozen=True, kw_only=True)
class FallBack(Command):
    """Restore the FP32 checkpoint, verified."""


@dataclass(frozen=True, kw_only=True)
class Cancel(Command):
    """End the running stage at the next safe point; the session stays as it is."""


@dataclass(frozen=True, kw_only=True)
class Close(Command):
    """End the engine."""
