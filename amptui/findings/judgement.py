"""The plain values in which a trial is judged: rows, counts of updates, the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Criterion = Literal["finite", "difference", "decision", "quality", "updates", "progress"]
Verdict = Literal["accept", "reject", "inconclusive"]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """One criterion with its reason; `given` where the project (or the command line) wrote it down itself."""

    name: str
    value: float | int | str | None
    reason: str
    given: bool
    #: Whether the user wrote another value before the lock; then `proposed` is what stood there.
    changed: bool = False
    proposed: float | int | str | None = None

    @property
    def writer(self) -> Literal["amptui", "project", "you"]:
        """Whose value it is."""
        return "you" if self.changed else "project" if self.given else "amptui"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the verdict: what was asked, what the baseline and the trial showed, and whether it passed.

    `baseline`, `trial` and `limit` are numbers, texts or None, in the criterion's own unit; `passed` is None for a
    row that is shown but decides nothing (a notice).
    """

    criterion: Criterion
    passed: bool | None
    baseline: object = None
    trial: object = None
    limit: object = None
    case: str | None = None
    #: What was compared, such as "output logits before the stretch" or "gradient of main, iteration 0".
    what: str = ""
    #: The measured figure that `limit` bounds, where it is a number.
    measured: float | None = None
    update: str | None = None
    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class UpdateCounts:
    """What became of one update over the trial's stretch."""

    name: str
    #: Iterations in which the update took part.
    iterations: int
    applied: int
    #: Not taken by the scaler's rule (found_inf).
    skipped: int
    #: Held back by the guard where the plain loop would have written.
    withheld: int
    #: Applied with a non-zero gradient.
    changed: int
    #: Step of the first applied update, or None.
    first_applied: int | None = None
    #: Iterations without any gradient.
    without_gradient: int = 0


@dataclass(frozen=True, kw_only=True)
class ScaleCourse:
    """The loss scale over the trial's stretch."""

    initial: float
    final: float
    lowest: float
