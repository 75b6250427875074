"""What torch's error messages say about precision, and what mends it."""

from __future__ import annotations

import re
from typing import Literal

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

_HALF = r"'?(c10::|at::|torch\.)?(half|bfloat16|float16|low precision)"

#: The first pattern that is found decides.
_PATTERNS: tuple[tuple[Problem, str], ...] = (
    ("constant_out_of_range", r"cannot be converted to type .* without overflow"),
    ("recompute_without_autocast", r"recomputed values for the following tensors have different metadata.*dtype"),
    ("unsafe_op", r"unsafe to autocast"),
    ("half_parameters", r"attempting to unscale fp16 gradients"),
    ("autocast_device", r"unsupported autocast device_type"),
    ("unsupported_op", rf"not implemented for {_HALF}"),
    ("unsupported_op", rf"{_HALF}\S* (precision |dtypes? |tensors? )?(is |are )?not (yet )?supported"),
    ("unsupported_op", rf"(unsupported|only supports?|does not support)[^.]*({_HALF}|scalartype)"),
    ("unsupported_op", r"only supports? .*(float32|float and double|double and float)"),
    ("unsupported_op", r"could not create a primitive"),
    ("dtype_mismatch", r"(same|matching|different|mismatched) (scalar |data |d)?types?"),
    ("dtype_mismatch", r"(input|bias|weight) type .* should be the same"),
    ("dtype_mismatch", r"expected (scalar type|dtype|\w+\.dtype|.* to have (the same )?dtype)"),
    ("dtype_mismatch", rf"(got|found) (scalar type |dtype )?({_HALF}|float\b)"),
    ("dtype_mismatch", r"dtypes? (do(es)? not |don't |to )?match"),
    ("dtype_mismatch", r"mixed dtype|expected \w+ dtype to"),
    ("dtype_mismatch", r"result type \w+ can't be cast"),
    ("dtype_mismatch", r"invalid gradient .* expected type"),
)

_MENDS: dict[Problem, str] = {
    "dtype_mismatch": "bring both operands to one dtype: `a.to(b.dtype)`, or `.float()` where range or digits matter",
    "custom_function": "decorate the function's forward and backward with torch.amp.custom_fwd(device_type=…) and "
    "torch.amp.custom_bwd(device_type=…), or cast inside",
    "in_place": "in-place ops do not promote: give the target the dtype of what is written into it, or cast that with "
    "`.to(target.dtype)`",
    "region_without_cast": "autocast is off here: cast the inputs with `.float()` where the FP32 region is entered",
    "thread_without_autocast": "the autocast state does not enter new threads: open `torch.autocast(…)` inside the "
    "function that the thread runs",
    "recompute_without_autocast": "the block is repeated in backward without autocast: use "
    "torch.utils.checkpoint.checkpoint (it restores the state), or open the same autocast around the repetition",
    "unsupported_op": "this op has no kernel for the dtype on this device: run it in FP32 with "
    "`torch.autocast(…, enabled=False)` and `.float()` inputs",
    "unsafe_op": "use the form that takes logits (binary_cross_entropy_with_logits), or run this loss in FP32",
    "constant_out_of_range": "the constant does not fit this dtype: use torch.finfo(x.dtype).min, or -inf for a mask",
    "half_parameters": "keep parameters in float32 (remove `.half()`); autocast casts them as needed",
    "autocast_device": "open autocast for the device that the tensors are on",
    "other": "",
}


def classify(message: str) -> Problem:
    """The kind of mistake that torch's message tells by itself."""
    for problem, pattern in _PATTERNS:
        if re.search(pattern, message, re.IGNORECASE | re.DOTALL):
            return problem
    return "other"


def mend_of(problem: Problem) -> str:
    """What mends it, in one line; empty where the kind of mistake is not known."""
    return _MENDS[problem]


def kernel_in(message: str) -> str | None:
    """The op that a message names: `addmm` in `"addmm_impl_cpu_" not implemented for 'Half'`."""
    found = re.search(r'"(\w+?)(_impl\w*|_kernel\w*|_cpu\w*|_cuda\w*|_out\w*)?_?" not implemented', message)
    return found.group(1) if found else None
