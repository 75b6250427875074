"""How CUDA's autocast treats an op, where CPU's treats it otherwise.

CPU autocast is not CUDA autocast: a replay on CPU can blame, or acquit, an op that runs in float32 on the user's GPU.
The list is the one of the dispatch registrations (`aten/src/ATen/autocast_mode.h`) and of the documentation page
"Automatic Mixed Precision package", for torch 2.10 to 2.13; a test compares it with the build at hand.
"""

from __future__ import annotations

#: ATen names that CUDA's autocast runs in float32 and CPU's runs in the dtype of the inputs.
FLOAT32_ON_CUDA_ONLY = frozenset({
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "logsumexp", "pow",
    "reciprocal", "rsqrt", "sinh", "tan", "softplus", "sum", "prod", "cumsum", "cumprod", "dist", "renorm",
    "_softmax", "_log_softmax", "_safe_softmax", "native_layer_norm", "native_group_norm", "linalg_vector_norm",
    "norm", "cosine_similarity", "_cdist_forward", "_pdist_forward", "nll_loss_forward", "nll_loss2d_forward",
})  # fmt: skip
#: ATen names that CPU's autocast runs in float32 and CUDA's runs in the dtype of the inputs.
FLOAT32_ON_CPU_ONLY = frozenset({
    "_ctc_loss", "_fft_r2c", "_fft_c2r", "_fft_c2c", "linalg_inv_ex", "linalg_cholesky_ex", "linalg_qr",
    "_linalg_svd", "linalg_lstsq",
})  # fmt: skip
_HALF = ("float16", "bfloat16")


def cuda_difference(aten: str, autocast: str | None, device: str, dtypes: tuple[str, ...]) -> str | None:
    """The dtype that CUDA's autocast would run this op in, if it is not the one it ran in here; else None.

    In-place forms have no autocast rule on either device.
    """
    if device != "cpu" or autocast is None or aten.endswith("_"):
        return None
    half = next((d for d in dtypes if d in _HALF), None)
    if aten in FLOAT32_ON_CUDA_ONLY and half is not None:
        return "float32"
    if aten in FLOAT32_ON_CPU_ONLY and half is None:
        return autocast
    return None
