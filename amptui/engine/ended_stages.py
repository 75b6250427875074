"""How a stage that did not end well is told: refused, the project's own failure, a session that cannot be kept."""

from __future__ import annotations

import torch

from amptui.engine.failures import UserCodeError, raised_by_user
from amptui.engine.plain_values import NotPlain
from amptui.engine.refusals import Refusal, loop_findings
from amptui.engine.regions import RegionError
from amptui.project import ProjectError
from amptui.protocol.events import CodeFailed, Event, Refused
from amptui.session.errors import SessionError
from amptui.spec.error import SpecError
from amptui.text import safe_text, text_of

_PLAIN = "keep it as plain values, or out of the state: what is not saved could not be put back"
_LESS_MEMORY = "use smaller batches (accumulate= keeps their sum), end other programs on the device, or choose another"
_FP32_FIRST = "amptui starts from a project that works in FP32: mend this first"
_SCHEDULE = (
    "the stretch goes on where the scheduler stands: let it have as many steps left, or run fewer: --iterations N"
)
_SECOND_BACKWARD = (
    "something that the loss uses was computed for an earlier batch (a hidden state, a cached output): detach() what "
    "is kept between batches"
)
_ALWAYS = "what belongs to the project must work whenever it is asked"


def events_of(error: BaseException) -> tuple[Event, ...]:
    """What to tell of the exception that ended a stage; empty for an error of amptui's own."""
    if isinstance(error, Refusal):
        return _refused(error.code, error.message, error.hint, where=error.where, findings=error.findings)
    if isinstance(error, SpecError):
        findings = loop_findings(error.__cause__, error.where)
        return _refused(error.code, error.message, error.hint, where=error.where, findings=findings)
    if isinstance(error, ProjectError | RegionError):
        return _refused("project", str(error), "correct it and run again", findings=loop_findings(error, None))
    if isinstance(error, SessionError):
        return _refused("session", str(error))
    if isinstance(error, UserCodeError):
        return _failed_in_fp32(error)
    if isinstance(error, torch.OutOfMemoryError):
        return _refused("memory", f"out of memory: {text_of(error).partition(chr(10))[0]}", _LESS_MEMORY)
    return _raised_in_passing(error)


def _refused(code: str, message: str, hint: str = "", **more: object) -> tuple[Event, ...]:
    return (Refused(code=code, message=message, hint=hint, **more),)  # type: ignore[arg-type]


def _failed_in_fp32(failure: UserCodeError) -> tuple[Event, ...]:
    """User code failed where FP32 was on: there is nothing to hold a trial against."""
    failed = CodeFailed(
        under="baseline",
        exception=failure.exception,
        message=failure.message,
        where=failure.where,
        module="",
        step=failure.step,
        case=failure.case,
        frames=failure.frames,
    )
    hint = _SCHEDULE if failure.phase == "scheduler" else _FP32_FIRST
    if failure.phase == "backward" and "through the graph a second time" in failure.message:
        hint = _SECOND_BACKWARD
    if isinstance(failure.original, torch.OutOfMemoryError):
        hint = _LESS_MEMORY
    said = f": {failure.message}" if failure.message else ""
    message = f"{_what_failed(failure)}: {failure.exception}{said}"
    return (failed, *_refused("fp32-failed", message, hint, where=failure.where))


def _what_failed(failure: UserCodeError) -> str:
    if failure.phase in ("batches", "cases"):
        return f"the project fails while its {failure.phase} are drawn"
    whose = f" of update {failure.update!r}" if failure.update else ""
    whose = f" of case {failure.case!r}" if failure.case else whose
    return f"{failure.phase}{whose} fails in FP32 already"


def _raised_in_passing(error: BaseException) -> tuple[Event, ...]:
    """What the project's code raised where amptui only uses it: its state, hooks, signals."""
    where = raised_by_user(error)
    if isinstance(error, NotPlain):
        return _refused("state", str(error), _PLAIN, where=where)
    if where is None:
        return ()
    said = f"your code raised {type(error).__name__} while amptui was using it: {safe_text(error, 1000)}"
    return _refused("raises", said, _ALWAYS, where=where)
