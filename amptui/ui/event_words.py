"""Events as lines of the log: what happened, in a few words; what happens in every iteration is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amptui.findings.policies import policy_name
from amptui.findings.words import counted, scale_text
from amptui.protocol import events as told
from amptui.protocol.events import Event
from amptui.report.figures import name, place, size
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState
from amptui.ui.raster.line import Role
from amptui.ui.raster.log import Entry

_VERDICTS: Mapping[str, Role] = {"accept": "good", "reject": "bad", "inconclusive": "warn"}


def entry_for(event: Event | EngineDeath, state: SessionState) -> Entry | None:
    """The log's line about `event`; `state` is the session after it. None where it needs none."""
    if isinstance(event, EngineDeath):
        return Entry(f"the engine ended ({event.how}): {event.words}", "bad")
    words = _WORDS.get(type(event))
    return None if words is None else words(event, state)


def _started(event: told.EngineStarted, _state: SessionState) -> Entry:
    return Entry(f"engine started, process {event.pid}, torch {event.environment.torch}")


def _checkpoint(event: told.CheckpointWritten, _state: SessionState) -> Entry:
    return Entry(f"checkpoint {event.name}: {counted(event.tensors, 'tensor')}, {size(event.bytes)}, verified", "good")


def _probed(event: told.Probed, _state: SessionState) -> Entry:
    if event.supported:
        return Entry(f"{event.dtype} autocast runs here", "good")
    return Entry(f"{event.dtype} autocast fails here: {event.error}", "bad")


def _repeat(event: told.RepeatProved, _state: SessionState) -> Entry | None:
    if not event.iterations:
        return None
    if event.repeatable:
        return Entry(f"{counted(event.iterations, 'iteration')} repeated bit for bit", "good")
    return Entry(f"two FP32 runs differ, first in {event.difference}", "bad")


def _locked(event: told.CriteriaLocked, _state: SessionState) -> Entry:
    reason = f": {event.reason}" if event.reason else ""
    return Entry(f"criteria locked, revision {event.revision}{reason}", "warn" if event.after_trial else "good")


def _trial(event: told.TrialStarted, _state: SessionState) -> Entry:
    how = "attended" if event.attended else "unattended"
    return Entry(f"trial {event.trial}: {counted(event.iterations, 'iteration')}, {how}")


def _tripped(event: told.GuardTripped, _state: SessionState) -> Entry:
    record = event.record
    kind = "skipped" if record.skipped else "withheld"
    return Entry(f"{record.update}: {kind}. {event.words}", "warn" if record.skipped else "bad", str(record.step))


def _iteration(event: told.IterationDone, _state: SessionState) -> Entry | None:
    record = event.record
    if record.scale_after == record.scale_before:
        return None
    way = "grows" if record.scale_after > record.scale_before else "drops"
    return Entry(
        f"scale {way} from {scale_text(record.scale_before)} to {scale_text(record.scale_after)}",
        "text",
        str(record.step),
    )


def _failed(event: told.CodeFailed, _state: SessionState) -> Entry:
    where = f" at {place(event.where)}" if event.where else ""
    when = "" if event.step is None else str(event.step)
    return Entry(f"the project's code failed{where}: {event.exception}: {event.message}", "bad", when)


def _paused(event: told.Paused, _state: SessionState) -> Entry | None:
    if event.why.startswith("after this"):  # stepping stops at every phase
        return None
    return Entry(f"paused: {event.why}", "text", str(event.step))


def _fell_back(event: told.FellBack, _state: SessionState) -> Entry:
    proven = "bit for bit" if event.proven else "bit for bit not proven"
    return Entry(f"fell back to checkpoint {event.checkpoint}: {counted(event.verified, 'tensor')}, {proven}", "good")


def _verdict(event: told.VerdictReached, _state: SessionState) -> Entry:
    return Entry(f"verdict of trial {event.trial}: {event.verdict}", _VERDICTS[event.verdict])


def _measured(event: told.Measured, _state: SessionState) -> Entry:
    said = "; ".join(claim.words for claim in event.claims) or "its cases are not the accepted ones"
    return Entry(f"{policy_name(event.policy)} measured: {said}")


def _found(event: told.CasesFound, _state: SessionState) -> Entry:
    written = f", written to {place(event.path)}" if event.path is not None else ""
    return Entry(f"{counted(len(event.found), 'case')} found in {counted(event.samples, 'sample')}{written}")


_WORDS: Mapping[type[Event], Callable[[Any, SessionState], Entry | None]] = {
    told.EngineStarted: _started,
    told.ProjectOpened: lambda event, _state: Entry(f"project {name(event.name)} opened"),
    told.Remarked: lambda event, _state: Entry(event.message, "warn"),
    told.Refused: lambda event, _state: Entry(f"refused: {event.message}", "bad"),
    told.Probed: _probed,
    told.CheckpointWritten: _checkpoint,
    told.RepeatProved: _repeat,
    told.BaselineDone: lambda event, _state: Entry(
        "baseline done" if event.finite and event.repeatable else "baseline done, and it decides nothing",
        "good" if event.finite and event.repeatable else "bad",
    ),
    told.CriteriaLocked: _locked,
    told.TrialStarted: _trial,
    told.GuardTripped: _tripped,
    told.IterationDone: _iteration,
    told.CaseRetained: lambda event, _state: Entry(f"failing iteration kept as {event.id} ({size(event.bytes)})"),
    told.Intervened: lambda event, _state: Entry(f"you chose {event.what}; this marks the verdict", "warn"),
    told.CodeFailed: _failed,
    told.Paused: _paused,
    told.Cancelled: lambda event, _state: Entry(f"{event.stage} ended early", "warn"),
    told.FellBack: _fell_back,
    told.VerdictReached: _verdict,
    told.Measured: _measured,
    told.SeedsMeasured: lambda event, _state: Entry(f"FP32 run under {counted(event.seeds, 'other seed')}"),
    told.CasesFound: _found,
    told.EngineFailed: lambda event, _state: Entry(f"the engine met an error: {event.message}", "bad"),
    told.Goodbye: lambda event, _state: Entry(f"the engine ended: {event.why}"),
}
