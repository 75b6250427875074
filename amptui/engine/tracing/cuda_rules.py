"""How CUDA's autocast treats an op, where CPU's treats it otherwise.

CPU autocast is not CUDA autocast: a replay on CPU can blame, or acquit, an op that runs in another dtype on the user's
GPU. The lists follow the dispatch registrations (`aten/src/ATen/autocast_mode.h`, `autocast_mode.cpp`) and the page
"Automatic Mixed Precision package" of torch's documentation; a test compares them with the registrations of the torch
at hand. Names are those that a dispatch mode sees.
"""

from __future__ import annotations

#: CUDA runs these in float32, CPU in the dtype of the inputs.
FLOAT32_ON_CUDA_ONLY = frozenset({
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "logsumexp", "pow",
    "reciprocal", "rsqrt", "sinh", "tan", "softplus", "sum", "cumsum", "cumprod", "dist", "renorm", "_softmax",
    "_log_softmax", "native_layer_norm", "native_group_norm", "_fused_rms_norm", "linalg_vector_norm", "norm",
    "_pdist_forward", "upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
})  # fmt: skip
#: CUDA runs these in the autocast dtype, CPU in the dtype of the inputs.
HALF_ON_CUDA_ONLY = frozenset({"mv", "addmv", "addr"})
#: CPU runs these in float32, CUDA in the dtype of the inputs.
FLOAT32_ON_CPU_ONLY = frozenset({
    "_fft_r2c", "_fft_c2r", "_fft_c2c", "linalg_inv_ex", "linalg_cholesky_ex", "linalg_qr",
    "linalg_lstsq", "grid_sampler_2d", "grid_sampler_3d", "avg_pool3d",
})  # fmt: skip
_HALF = ("float16", "bfloat16")


def cuda_difference(aten: str, autocast: str | None, device: str, dtypes: tuple[str, ...]) -> str | None:
    """The dtype that CUDA's autocast would run this op in, if it is not the one it ran in here; else None.

    `dtypes` are those of the inputs. In-place forms have no autocast rule on either device. Where CPU runs in float32
    what CUDA does not, the answer is the autocast dtype: that of the tensors that such a model passes around.
    """
    if device != "cpu" or autocast is None or aten.endswith("_"):
        return None
    in_half = any(dtype in _HALF for dtype in dtypes)
    if aten in FLOAT32_ON_CUDA_ONLY and in_half:
        return "float32"
    if aten in FLOAT32_ON_CPU_ONLY | HALF_ON_CUDA_ONLY and not in_half:
        return autocast
    return None
