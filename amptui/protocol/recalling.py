"""Failures looked into: while the trial stands still at them, and retained cases asked for again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from amptui.findings.finding import Finding
from amptui.protocol.base import Command, Event

#: `fixed`: everything is finite now. `same` and `other_place`: it fails where it failed before, or elsewhere.
Recalled = Literal["fixed", "same", "other_place"]


@dataclass(frozen=True, kw_only=True)
class ReplayCase(Command):
    """Run the retained case `id` once more, on its own weights, buffers, batches and RNG, traced."""

    id: str


@dataclass(frozen=True, kw_only=True)
class CaseReplayed(Event):
    id: str
    step: int
    update: str
    outcome: Recalled
    #: How faithful the replay was, in words.
    replayed: str
    findings: tuple[Finding, ...]
    #: What true FP32 and other loss scales give on the same case: what was varied, and what happened.
    variations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diagnosed(Event):
    """What traced replays of a failure show while the weights are still those of that moment.

    `step` is the iteration, or the 0-based index of an evaluation case; findings may be none where a replay named no
    place. `variations` is the table of replays: what was varied, and what happened.
    """

    step: int
    update: str | None
    case: str | None
    retained: str | None
    findings: tuple[Finding, ...]
    variations: tuple[tuple[str, str], ...]
