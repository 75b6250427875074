"""What marks a verdict: what was done in mid-run that an unattended run would not do, and a policy thought of late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from amptui.findings.words import counted
from amptui.protocol.events import Intervened, VerdictReached
from amptui.report.figures import words
from amptui.session.state import SessionState

_LATE = "the policy was chosen after a trial had run"
#: A policy that was thought of late is marked also where nobody touched its run; the next run is the one that counts.
_CONFIRMS = "The same policy once more, unattended, confirms the verdict."


def say_interventions(event: VerdictReached, state: SessionState) -> str:
    """What counted, as far as it is known, and what confirms the verdict; "" where nothing did."""
    if not event.interventions:
        return ""
    trial = next((trial for trial in reversed(state.trials) if trial.number == event.trial), None)
    done = trial.interventions if trial is not None else ()
    parts = _done(done)
    if event.trial > 1 and event.interventions == len(done) + 1:  # none but this is counted without an event of its own
        parts.append(_LATE)
    what = f" ({', and '.join(parts)})" if parts else ""
    return f"{counted(event.interventions, 'intervention')}{what}. {_CONFIRMS}"


def _done(done: Sequence[Intervened]) -> list[str]:
    """Each sort of thing that was done, with its steps."""
    sorts = Counter(event.what for event in done)
    return [
        f"{words('a retry' if what == 'retry' and count == 1 else 'retries' if what == 'retry' else what)} "
        f"at {_steps([event.step for event in done if event.what == what])}"
        for what, count in sorts.items()
    ]


def _steps(steps: Sequence[int]) -> str:
    if len(steps) > 3:
        return f"{len(steps):,} steps from {min(steps):,} on"
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(f'{step:,}' for step in steps)}"
