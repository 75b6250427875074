"""Where code failed under the policy: module, op, line, what kind of mistake it is and how to mend it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from amptui.engine.tracing.messages import Problem, classify, kernel_in, mend_of
from amptui.engine.tracing.modules import ModulePaths
from amptui.engine.tracing.recording import Failure
from amptui.engine.tracing.source import (
    ENGINE,
    Line,
    frames_of,
    is_checkpoint_code,
    is_torch_code,
    is_user_code,
    line_of,
    outermost,
)
from amptui.engine.tracing.tape import Phase
from amptui.engine.tracing.values import TensorFacts
from amptui.text import text_of


@dataclass(frozen=True, kw_only=True)
class ErrorPlace:
    """An exception of the user's run in plain values."""

    problem: Problem
    phase: Phase
    #: Dotted path; the name of the user function outside of all modules.
    module: str
    #: Torch name of the op that raised, or of the torch call around it; None for an error of plain Python.
    op: str | None
    #: `file:line` of the user's code.
    line: str | None
    source: str
    error_type: str
    message: str
    #: dtype and shape of the tensors that the op was given.
    inputs: tuple[TensorFacts, ...] = ()
    #: The autograd node, in backward.
    node: str | None = None
    recomputed: bool = False
    #: dtype of the autocast that was on at the op; None where it was off (or is not known: see `traced`).
    autocast: str | None = None
    #: False in a thread of the user's own.
    home_thread: bool = True
    #: Whether the run was traced, so that op, autocast state and module in backward are known.
    traced: bool = False

    @property
    def mend(self) -> str:
        """What mends it, in one line; empty where the kind of mistake is not known."""
        return mend_of(self.problem)


def locate_error(
    error: BaseException,
    modules: nn.Module | dict[str, nn.Module] | ModulePaths,
    *,
    failures: Sequence[Failure] = (),
    api: str | None = None,
    autocast_seen: bool = False,
    outside: str = "loss",
) -> ErrorPlace:
    """Find the place of an exception from its traceback and, if the run was traced, from the op that raised.

    `failures` are those that the trace saw (user code may have caught some); `api` is the torch call in flight;
    `autocast_seen` says that autocast was on earlier in the run.
    """
    paths = modules if isinstance(modules, ModulePaths) else ModulePaths(modules)
    travelled = _travel(error, paths)
    place = _from_traceback(error, travelled, outside, api)
    failure = _failure_of(error, failures)
    if failure is not None:
        at = failure.place
        place = replace(
            place,
            phase=at.phase,
            module=at.module,
            op=at.op,
            line=str(at.line) if at.line is not None else place.line,
            source=at.line.text if at.line is not None else place.source,
            inputs=failure.inputs,
            node=at.node,
            recomputed=at.recomputed,
            autocast=at.autocast,
            home_thread=at.home_thread,
            traced=True,
        )
    return replace(place, problem=_refine(place, travelled, autocast_seen))


def _failure_of(error: BaseException, failures: Sequence[Failure]) -> Failure | None:
    """The op that raised this exception or one that it was raised from; equal text counts, as threads copy errors."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for failure in failures:
        if any(failure.error is e for e in chain):
            return failure
    for failure in failures:
        if any(type(failure.error) is type(e) and text_of(failure.error) == text_of(e) for e in chain):
            return failure
    return None


@dataclass(frozen=True)
class _Travelled:
    """What a traceback tells."""

    line: Line | None
    module: str | None
    call: str | None
    in_backward: bool
    in_thread: bool
    recomputed: bool
    #: The innermost user frame is a custom function's `backward` or a hook, not a repeated forward.
    custom_backward: bool


def _travel(error: BaseException, paths: ModulePaths) -> _Travelled:
    """Follow a traceback inwards: user lines, modules, and whether backward or another thread was entered."""
    line = module = call = None
    in_backward = repeating = custom = False
    frames = frames_of(error.__traceback__)
    for frame, number in frames:
        code = frame.f_code
        path = paths.path_of(frame.f_locals.get("self"))
        if path is not None:
            module = path
        if code.co_name == ENGINE:
            in_backward, module = True, None
        repeating = repeating or (in_backward and (is_checkpoint_code(code) or path is not None))
        if is_user_code(code):
            line, call = line_of(frame, number), None
            custom = in_backward and not repeating
        elif is_torch_code(code) and not code.co_name.startswith("_") and code.co_name != "forward":
            call = code.co_name
    in_thread = bool(frames) and outermost(frames[0][0]) is not outermost(frames[-1][0])
    return _Travelled(line, module, call, in_backward, in_thread, repeating, custom)


def _from_traceback(error: BaseException, travelled: _Travelled, outside: str, api: str | None) -> ErrorPlace:
    line, module, message = travelled.line, travelled.module, text_of(error)
    phase = "backward" if travelled.in_backward and not travelled.recomputed else "forward"
    if module is None and phase == "forward" and outside == "loss":
        phase = "loss"
    source = line.text if line is not None else ""
    op = None
    if not source.startswith(("raise ", "assert ")):
        op = travelled.call or api or kernel_in(message)
    return ErrorPlace(
        problem=classify(message),
        phase=phase,
        module=module if module is not None else outside,
        op=op,
        line=str(line) if line is not None else None,
        source=source,
        error_type=type(error).__name__,
        message=message,
        recomputed=travelled.recomputed,
        home_thread=not travelled.in_thread,
    )


def _refine(place: ErrorPlace, travelled: _Travelled, autocast_seen: bool) -> Problem:
    """What a mismatch of dtypes comes from, given where it happened and whether autocast should have been on there."""
    if place.problem != "dtype_mismatch":
        return place.problem
    missing = not place.traced or (place.autocast is None and autocast_seen)
    if not place.home_thread and missing:
        return "thread_without_autocast"
    if place.recomputed and missing:
        return "recompute_without_autocast"
    if travelled.custom_backward:
        return "custom_function"
    if place.op is not None and place.op.endswith("_") and not place.op.endswith("__"):
        return "in_place"
    if place.traced and missing and place.phase != "backward":
        return "region_without_cast"
    return "dtype_mismatch"
