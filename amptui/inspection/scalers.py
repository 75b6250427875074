"""Scaler states by their shape, wherever they stand: a state dict, a pickled object, or one of the frameworks' own.

Sources: torch/amp/grad_scaler.py, deepspeed/runtime/fp16 (loss_scaler.py, fused_optimizer.py), apex/amp/frontend.py,
Megatron-LM grad_scaler.py, fairseq/optim/fp16_optimizer.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from amptui.inspection.nodes import Call, Node, Opaque, Tensor, mapping_of
from amptui.inspection.result import ScalerState

Number = Callable[[Node], "int | float | None"]

_FIVE = frozenset({"growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"})
_NAMES = re.compile(
    r"(^|[_.])(scalers?|gradscaler)([_.]?\w{0,3})?$|grad_scaler|amp_scaler|loss_scaler|^MixedPrecision|amp_scaling_state"
)


def named_like_scaler(key: Node) -> bool:
    """Whether `key` is a name under which scaler states are kept."""
    return isinstance(key, str) and _NAMES.search(key) is not None


def scaler_at(path: str, key: Node, node: Node, number: Number) -> ScalerState | None:
    """The scaler state that `node` is (`key` is the name it stands under), or None."""
    mapping = node if isinstance(node, dict) else mapping_of(node)
    if mapping is None:
        return _odd_value(path, key, node)
    for shape in (_grad_scaler, _pickled_grad_scaler, _deepspeed, _megatron, _loss_scale):
        found = shape(path, mapping, number)
        if found is not None:
            return found
    if not mapping and isinstance(node, dict) and named_like_scaler(key):
        return ScalerState(path=path, kind="GradScaler", empty=True)
    return None


def _grad_scaler(path: str, fields: Mapping[Node, Node], number: Number) -> ScalerState | None:
    """torch's state dict; also with entries missing, as long as three of its five are there."""
    if len((_FIVE | {"scale"}) & fields.keys()) < 3 and not {"scale", "_growth_tracker"} <= fields.keys():
        return None
    return _state(path, "GradScaler", fields, number, scale="scale", tracker="_growth_tracker")


def _pickled_grad_scaler(path: str, fields: Mapping[Node, Node], number: Number) -> ScalerState | None:
    """The attributes of a pickled torch GradScaler: its scale is moved to `_init_scale` on the way out."""
    if not {"_growth_factor", "_backoff_factor", "_growth_interval"} <= fields.keys():
        return None
    return _state(
        path,
        "GradScaler object",
        fields,
        number,
        scale="_init_scale",
        tracker="_init_growth_tracker",
        interval="_growth_interval",
        growth="_growth_factor",
        backoff="_backoff_factor",
    )


def _deepspeed(path: str, fields: Mapping[Node, Node], number: Number) -> ScalerState | None:
    """DeepSpeed counts updates and remembers the last overflow; it grows each `scale_window` updates after it."""
    if "cur_scale" not in fields:
        return None
    current, last = number(fields.get("cur_iter")), number(fields.get("last_overflow_iter"))
    window = number(fields.get("scale_window"))
    clean = None
    if isinstance(current, int) and isinstance(last, int):
        clean = max(0, current - last - 1)
        clean = clean % window if isinstance(window, int) and window > 0 else clean
    factor = number(fields.get("scale_factor"))
    dynamic = fields.get("dynamic_loss_scale", "cur_iter" in fields)
    return ScalerState(
        path=path,
        kind="DeepSpeed" if dynamic else "DeepSpeed, static",
        scale=number(fields["cur_scale"]),
        stored=_stored(fields["cur_scale"], number),
        growth_tracker=clean,
        growth_interval=window,
        growth_factor=factor,
        backoff_factor=1 / factor if factor else None,
        lowest_scale=number(fields.get("min_scale")),
    )


def _megatron(path: str, fields: Mapping[Node, Node], number: Number) -> ScalerState | None:
    if not {"scale", "growth_tracker", "hysteresis_tracker"} <= fields.keys():
        return None
    return _state(path, "Megatron", fields, number, scale="scale", tracker="growth_tracker")


def _loss_scale(path: str, fields: Mapping[Node, Node], number: Number) -> ScalerState | None:
    """apex ({loss_scale, unskipped}) and fairseq (an optimizer state with `loss_scale`)."""
    if "loss_scale" not in fields:
        return None
    if "unskipped" in fields:
        scale = fields["loss_scale"]
        clean = number(fields["unskipped"])
        kind, interval = "apex", 2000  # apex/amp/scaler.py: scale_window=2000, fixed
        return ScalerState(
            path=path,
            kind=kind,
            scale=number(scale),
            stored=_stored(scale, number),
            growth_tracker=clean,
            growth_interval=interval,
        )
    if {"state", "param_groups"} <= fields.keys():
        scale = fields["loss_scale"]
        return ScalerState(path=path, kind="fairseq", scale=number(scale), stored=_stored(scale, number))
    return None


def _state(
    path: str,
    kind: str,
    fields: Mapping[Node, Node],
    number: Number,
    *,
    scale: str,
    tracker: str,
    interval: str = "growth_interval",
    growth: str = "growth_factor",
    backoff: str = "backoff_factor",
) -> ScalerState:
    absent = tuple(name for name in (scale, tracker) if name not in fields)
    wrong = tuple(
        f"{name} is {_stored(fields[name], number)}"
        for name in (tracker, interval, growth, backoff)
        if name in fields and number(fields[name]) is None
    )
    return ScalerState(
        path=path,
        kind=kind,
        scale=number(fields.get(scale)),
        stored=_stored(fields.get(scale), number) if scale in fields else "",
        growth_tracker=number(fields.get(tracker)),
        growth_interval=number(fields.get(interval)),
        growth_factor=number(fields.get(growth)),
        backoff_factor=number(fields.get(backoff)),
        absent=absent,
        wrong=wrong,
    )


def _odd_value(path: str, key: Node, node: Node) -> ScalerState | None:
    """A number or text where a scaler state should be: what people save who keep `scaler.get_scale()`."""
    if named_like_scaler(key) and isinstance(node, int | float | str) and not isinstance(node, bool):
        return ScalerState(path=path, kind="not a state", stored=words_of(node))
    return None


def _stored(node: Node, number: Number) -> str:
    """What stands where a number is expected, in words; "" where a number does."""
    return "" if number(node) is not None else words_of(node)


def words_of(node: Node) -> str:
    """A value in few words, with its type where that matters."""
    if isinstance(node, str):
        return f"the text {node[:40]!r}"
    if node is None or isinstance(node, bool):
        return str(node)
    if isinstance(node, int):
        return str(node) if node.bit_length() < 256 else f"a number of {node.bit_length():,} bits"
    if isinstance(node, float):
        return repr(node)
    if isinstance(node, Tensor):
        return f"a {node.dtype} tensor of shape {list(node.shape)[:8]}"
    if isinstance(node, Call):
        return f"an object of {node.name[:80]}" if node.name else "a computed object"
    if isinstance(node, Opaque):
        return node.words
    return f"a {type(node).__name__} of {len(node):,}" if isinstance(node, list | tuple | dict | bytes) else "a value"
