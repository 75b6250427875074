"""What can be said of an ATen op before it runs: what it writes, which outputs share memory, which are scratch."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from amptui.engine.tracing.values import Kind, real_values

#: ATen names with the torch name that a user knows, where there is exactly one.
_TORCH_NAMES = {
    "_to_copy": "to",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "_safe_softmax": "softmax",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "native_dropout": "dropout",
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss2d",
    "mkldnn_convolution": "convolution",
    "cudnn_convolution": "convolution",
    "_ctc_loss": "ctc_loss",
    "_cdist_forward": "cdist",
    "_fused_rms_norm": "rms_norm",
    "_thnn_fused_lstm_cell": "lstm_cell",
    "_thnn_fused_gru_cell": "gru_cell",
    "_local_scalar_dense": "item",
}
#: Outputs that share memory although the schema does not say so, or that hold nothing new.
_PASSIVE = {
    "_unsafe_view",
    "_reshape_alias",
    "lift",
    "lift_fresh",
    "lift_fresh_copy",
    "_local_scalar_dense",
    "is_same_size",
}
#: Memory that nobody has written yet: whatever it holds is no event.
_UNINITIALISED = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "set_",
    "_efficientzerotensor",
}  # fmt: skip
#: In-place ops that overwrite all of their target: what it held before does not matter.
_OVERWRITES = {
    "copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_", "log_normal_",
    "geometric_", "cauchy_",
}  # fmt: skip
#: What autocast runs in half on CPU and CUDA: the ops that make half values out of float32 ones.
_MAKES_HALF = {
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "convolution", "mkldnn_convolution", "cudnn_convolution", "conv_tbc",
    "linear", "matmul", "mkldnn_rnn_layer", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "prelu",
}  # fmt: skip
#: Second and later outputs of these ops are tables for their own backward and hold -inf when all is well.
_SCRATCH = ("_ctc_loss", "_cudnn_ctc_loss", "_scaled_dot_product", "_flash_attention", "_efficient_attention")
#: Running statistics: written in training mode although some of these schemas do not say so, and not read then.
_STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True, slots=True)
class OpFacts:
    """Static facts of one overload."""

    #: ATen name without namespace and overload.
    aten: str
    #: The name to show.
    name: str
    #: Nothing to screen: views, aliases, reads.
    passive: bool
    #: Positions and names of the arguments that are written.
    written: frozenset[int | str]
    #: What the written arguments held before is lost, and does not matter.
    overwrites: bool
    uninitialised: bool
    #: Index of the first scratch output; outputs before it are results.
    scratch_from: int
    #: Positions of running statistics, and of the flag that says they are written and not read.
    statistics: tuple[int, ...]
    training: int | None
    #: Takes nothing but shape and dtype from its tensors (`zeros_like`, `new_full`).
    shape_only: bool
    #: Draws random numbers: running it again would disturb the replay.
    random: bool


def makes_half(aten: str) -> bool:
    """Whether autocast runs this op in half."""
    return aten in _MAKES_HALF or aten.startswith("_scaled_dot_product")


def shown_name(aten: str) -> str:
    """The torch name of an ATen op where there is exactly one, else the ATen name."""
    if aten.startswith("_scaled_dot_product") and not aten.endswith("_backward"):
        return "scaled_dot_product_attention"
    return _TORCH_NAMES.get(aten, aten)


def learn(func: OpOverload) -> OpFacts:
    """The facts of an overload, from its schema."""
    schema = func._schema
    aten = schema.name.split("::")[-1]
    written: set[int | str] = set()
    statistics = []
    training = None
    for position, argument in enumerate(schema.arguments):
        if argument.name in _STATISTICS:
            statistics.append(position)
        elif argument.name == "training":
            training = position
        elif argument.alias_info is not None and argument.alias_info.is_write:
            written |= {position, argument.name}
    aliases = [r.alias_info for r in schema.returns]
    views = bool(aliases) and all(a is not None and not a.is_write for a in aliases)
    is_out_variant = any(a.kwarg_only and a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    return OpFacts(
        aten=aten,
        name=shown_name(aten),
        passive=views or aten in _PASSIVE or not _returns_tensors(func),
        written=frozenset(written),
        overwrites=aten in _OVERWRITES or is_out_variant,
        uninitialised=aten in _UNINITIALISED,
        scratch_from=1 if aten.startswith(_SCRATCH) else sys.maxsize,
        statistics=tuple(statistics),
        training=training if statistics else None,
        shape_only=aten.endswith("_like") or aten.startswith("new_"),
        random=torch.Tag.nondeterministic_seeded in func.tags,
    )


def _returns_tensors(func: OpOverload) -> bool:
    schema = func._schema
    if any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments):
        return True  # the _foreach_ and _amp_ ops return nothing and write
    return any("Tensor" in str(r.type) for r in schema.returns)


def tensors_in(values: Iterable[object]) -> list[Tensor]:
    """The tensors among arguments or results, one list deep as ATen's are."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(v for v in value if isinstance(v, Tensor))
    return found


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an op."""

    func: OpOverload
    facts: OpFacts
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments whose values count."""
        if self.facts.shape_only:
            return []
        return tensors_in((*self.args, *self.kwargs.values()) if self.kwargs else self.args)

    def written(self) -> list[Tensor]:
        """The tensors that this call writes."""
        written = self.facts.written
        if not written:
            return []
        return tensors_in(
            [
                *(a for i, a in enumerate(self.args) if i in written),
                *(v for k, v in self.kwargs.items() if k in written),
            ]
        )

    def statistics(self) -> list[Tensor]:
        """The running statistics among the arguments."""
        return tensors_in(self.args[i] for i in self.facts.statistics if i < len(self.args))

    def row(self, i: int) -> list[Tensor]:
        """The i-th tensors of the lists that a `_foreach_` op takes, and those that it takes for all."""
        found = []
        for value in self.args:
            if isinstance(value, Tensor):
                found.append(value)
            elif isinstance(value, (list, tuple)) and i < len(value) and isinstance(value[i], Tensor):
                found.append(value[i])
        return found


def in_training(facts: OpFacts, args: tuple[object, ...]) -> bool:
    """Whether batch norm writes its running statistics and does not read them."""
    return facts.training is None or bool(args[facts.training])  # `_batch_norm_with_update` has no flag


def literal_kinds(args: Iterable[object], kwargs: Mapping[str, object]) -> frozenset[Kind]:
    """The non-finite numbers that stand literally among the arguments: somebody wrote them on purpose."""
    kinds: set[Kind] = set()
    for value in (*args, *kwargs.values()):
        if isinstance(value, float) and not math.isfinite(value):
            kinds.add("nan" if math.isnan(value) else "inf" if value > 0 else "-inf")
    return frozenset(kinds)


def is_sentinel_cast(source: Tensor, low_end: float) -> bool:
    """Whether a cast to a range that ends at `low_end` turned one chosen constant into -inf.

    A mask filled with FP32's lowest number or with -1e9 becomes -inf in FP16. That is what its author wanted, so it is
    treated like a literal. All values that left the range are then one and the same, and either the lowest number of
    a floating dtype or a power of ten of at least a million.
    """
    values = real_values(source)
    if values is None:
        return False
    left = values[values < low_end]
    if left.numel() == 0 or bool((values > -low_end).any()):
        return False
    low, high = torch.aminmax(left)
    value = float(low.item())
    if value != float(high.item()) or not math.isfinite(value):
        return False
    if any(math.isclose(value, torch.finfo(dtype).min, rel_tol=1e-2) for dtype in (torch.float32, torch.bfloat16)):
        return True
    return value <= -1e6 and math.isclose(
        value, float(f"{value:.0e}"), rel_tol=1e-2 if source.dtype == torch.bfloat16 else 1e-6
    )
