"""Where code failed under the policy: module, op, line, what kind of mistake it is and how to mend it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from amptui.engine.tracing.modules import ModulePaths
from amptui.engine.tracing.recording import Failure
from amptui.engine.tracing.source import frames_of, is_checkpoint_code, is_user_code, line_of
from amptui.engine.tracing.tape import Phase
from amptui.engine.tracing.values import TensorFacts

Problem = Literal[
    "dtype_mismatch",
    "custom_function",
    "in_place",
    "region_without_cast",
    "thread_without_autocast",
    "recompute_without_autocast",
    "unsupported_op",
    "unsafe_op",
    "constant_out_of_range",
    "half_parameters",
    "autocast_device",
    "other",
]

#: What torch's messages say. The first that matches decides.
_MESSAGES: tuple[tuple[Problem, re.Pattern[str]], ...] = tuple(
    (problem, re.compile(pattern, re.IGNORECASE | re.DOTALL))
    for problem, pattern in (
        ("constant_out_of_range", r"cannot be converted to type .* without overflow"),
        ("recompute_without_autocast", r"recomputed values for the following tensors have different metadata.*dtype"),
        ("unsafe_op", r"unsafe to autocast"),
        ("half_parameters", r"attempting to unscale fp16 gradients"),
        ("autocast_device", r"(unsupported autocast device_type|expected.*device_type.*autocast)"),
        ("unsupported_op", r"not implemented for '?(c10::)?(half|bfloat16|float16)"),
        (
            "unsupported_op",
            r"(unsupported|not supported|only supports?|does not support)[^.]*(half|bfloat16|float16|low precision|scalartype)",
        ),
        ("unsupported_op", r"(half|bfloat16|float16)\S* (precision )?(is |are )?not (yet )?supported"),
        ("unsupported_op", r"could not create a primitive"),
        ("dtype_mismatch", r"(same|matching|different|mismatched) (scalar |data |d)?types?"),
        ("dtype_mismatch", r"(input|bias|weight) type .* should be the same"),
        ("dtype_mismatch", r"expected (scalar type|dtype|.* to have (the same )?dtype)"),
        ("dtype_mismatch", r"(but )?(got|found) (scalar type|dtype)? ?'?(c10::)?(half|bfloat16|float)\b"),
        ("dtype_mismatch", r"dtypes? (do(es)? not|don't|to) match"),
        ("dtype_mismatch", r"result type \w+ can't be cast"),
        ("dtype_mismatch", r"(source|destination|self|value) .*dtypes? match"),
        ("dtype_mismatch", r"invalid gradient .* expected type"),
    )
)

_MENDS: dict[Problem, str] = {
    "dtype_mismatch": "bring both operands to one dtype: `a.to(b.dtype)`, or `.float()` where range or digits matter",
    "custom_function": "decorate the function's forward and backward with torch.amp.custom_fwd(device_type=…) and "
    "torch.amp.custom_bwd(device_type=…), or cast inside",
    "in_place": "in-place ops do not promote: create the target with the dtype of what is written into it, or cast that "
    "with `.to(target.dtype)`",
    "region_without_cast": "autocast is off here: cast the inputs with `.float()` when the FP32 region is entered",
    "thread_without_autocast": "the autocast state does not enter new threads: open `torch.autocast(…)` inside the "
    "function that the thread runs",
    "recompute_without_autocast": "the block is repeated in backward without autocast: use "
    "torch.utils.checkpoint.checkpoint (it restores the state), or open the same autocast around the repetition",
    "unsupported_op": "this op has no kernel for the dtype on this device: run it in FP32 with "
    "`torch.autocast(…, enabled=False)` and `.float()` inputs",
    "unsafe_op": "use the form that takes logits (binary_cross_entropy_with_logits), or run this loss in FP32",
    "constant_out_of_range": "the constant does not exist in this dtype: use torch.finfo(x.dtype).min (or -inf for a mask)",
    "half_parameters": "keep parameters in float32: remove `.half()`; autocast casts them as needed",
    "autocast_device": "open autocast for the device that the tensors are on",
    "other": "",
}


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
        return _MENDS[self.problem]


def classify(message: str) -> Problem:
    """The kind of mistake that torch's message tells by itself."""
    for problem, pattern in _MESSAGES:
        if pattern.search(message):
            return problem
    return "other"


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
    from_traceback = _from_traceback(error, paths, outside, api)
    failure = _failure_of(error, failures)
    if failure is None:
        return _refine(from_traceback, autocast_seen)
    place = failure.place
    line = str(place.line) if place.line is not None else from_traceback.line
    source = place.line.text if place.line is not None else from_traceback.source
    located = ErrorPlace(
        problem=from_traceback.problem,
        phase=place.phase,
        module=place.module,
        op=place.op,
        line=line,
        source=source,
        error_type=from_traceback.error_type,
        message=from_traceback.message,
        inputs=failure.inputs,
        node=place.node,
        recomputed=place.recomputed,
        autocast=place.autocast,
        home_thread=place.home_thread,
        traced=True,
    )
    return _refine(located, autocast_seen)


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
        if any(type(failure.error) is type(e) and str(failure.error) == str(e) for e in chain):
            return failure
    return None


def _from_traceback(error: BaseException, paths: ModulePaths, outside: str, api: str | None) -> ErrorPlace:
    """Innermost user line, innermost module on the way to it, and whether backward or a thread was on the way."""
    line = module = call = None
    phase: Phase = "forward"
    recomputed = in_thread = custom_backward = False
    for frame, number in frames_of(error.__traceback__):
        code = frame.f_code
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            module = paths.path_of(owner) if paths.path_of(owner) is not None else module
        if code.co_name == "_engine_run_backward":
            phase, module, line = "backward", None, line
        recomputed = recomputed or (phase == "backward" and is_checkpoint_code(code))
        in_thread = in_thread or code.co_filename.endswith("threading.py")
        if is_user_code(code):
            line, call = line_of(frame, number), None
            custom_backward = phase == "backward"
        elif "torch" in code.co_filename and not code.co_name.startswith("_") and code.co_name != "forward":
            call = code.co_name
    message = str(error)
    if phase == "backward" and recomputed:
        phase = "forward"
    problem = classify(message)
    if problem == "dtype_mismatch" and custom_backward and not recomputed and phase == "backward":
        problem = "custom_function"
    if module is None and phase == "forward" and outside == "loss":
        phase = "loss"
    return ErrorPlace(
        problem=problem,
        phase=phase,
        module=module if module is not None else outside,
        op=api or call or _kernel_in(message),
        line=str(line) if line is not None else None,
        source=line.text if line is not None else "",
        error_type=type(error).__name__,
        message=message,
        recomputed=recomputed,
        home_thread=not in_thread,
    )


def _kernel_in(message: str) -> str | None:
    """The op in `"addmm_impl_cpu_" not implemented for 'Half'`."""
    found = re.search(r'"(\w+?)(_impl\w*|_kernel\w*|_cpu\w*|_cuda\w*|_out\w*)?_?" not implemented', message)
    return found.group(1) if found else None


def _refine(place: ErrorPlace, autocast_seen: bool) -> ErrorPlace:
    """The kind of mistake, given where it happened and whether autocast should have been on there."""
    if place.problem != "dtype_mismatch":
        return place
    problem: Problem = "dtype_mismatch"
    missing = place.autocast is None and place.traced and autocast_seen
    if not place.home_thread and (missing or not place.traced):
        problem = "thread_without_autocast"
    elif place.recomputed and (missing or not place.traced):
        problem = "recompute_without_autocast"
    elif place.phase == "backward":
        problem = "custom_function" if place.node is not None and place.line is not None else "dtype_mismatch"
    elif place.op is not None and place.op.endswith("_") and not place.op.endswith("__"):
        problem = "in_place"
    elif missing:
        problem = "region_without_cast"
    return replace(place, problem=problem)
