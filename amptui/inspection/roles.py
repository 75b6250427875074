"""What a part of a checkpoint is there for, by its name: weights, averages, an optimizer's, generators, records."""

from __future__ import annotations

import re
from itertools import islice

from amptui.inspection.nodes import Node, Tensor, mapping_of

_MASTERS = re.compile(
    r"fp32_groups_flat|fp32_flat_groups|partition_of_fp32_groups|fp32_from_\w+|master_(params|weights)"
)
_EMA = re.compile(r"(^|[_.])(ema|ema_model|model_ema|averaged|shadow(_params)?|swa)([_.]|$)|_ema$|^ema_")
_RECORDS = frozenset(
    [
        "callbacks",
        "loops",
        "metrics",
        "message_hub",
        "meta",
        "hyper_parameters",
        "hparams",
        "args",
        "cfg",
        "config",
        "best",
        "history",
        "log_history",
        "train_metrics",
        "train_results",
    ]
)
_MEASURED = re.compile(r"(^|_)(loss(es)?|metrics?|scores?|acc(uracy|uracies)?|history|logs?|best)(_|$)")
_RNG_NAME = re.compile(r"(^|_)(rng|random)(_|$)|(^|_)rng_|random_states?|manual_seed")


_BUFFER = re.compile(r"(^|\.)(running_mean|running_var|num_batches_tracked)$|(^|\.)non_persistent_buffers\.")


def is_buffer(path: str, dtype: str) -> bool:
    """Whether a tensor of the model is surely a buffer: by the names that torch gives, or a dtype without gradients."""
    return dtype in ("int64", "bool") or _BUFFER.search(path) is not None


def role_of_file(file: str) -> str:
    """The role of all that a file holds, by the file's name; "" where that tells none."""
    name = file.lower()
    if name.startswith(("optimizer", "optim")) or "optim_states" in name:
        return "optimizer_state"
    if name.startswith(("rng_state", "random_states")):
        return "rng"
    return ""


def role_of(key: Node, value: Node, *, inherited: str, parent: Node, top: bool) -> str:
    """The role of `parent[key]`, which has the role `inherited`; `top` where the parent is the root."""
    if not isinstance(key, str):
        return inherited
    if _MASTERS.search(key):
        return "master_copies"
    if inherited == "optimizer_state":
        return "optimizer_step" if key == "step" else inherited
    if inherited == "other" and not isinstance(value, Tensor) and _EMA.search(key):
        return "ema"  # averaged weights that a callback keeps
    if inherited in ("rng", "other", "ema", "master_copies", "optimizer_step"):
        return inherited
    if _RNG_NAME.search(key):
        return "rng"
    if key in _RECORDS or (top and _is_record(key, parent, value)):
        return "other"
    if not isinstance(value, Tensor) and _EMA.search(key):
        return "ema"
    if isinstance(value, Tensor) and top and _EMA.search(key):
        return "ema"
    return inherited


def _is_record(key: str, root: Node, value: Node) -> bool:
    """Whether a top entry is a measured value rather than a weight: a loss, or one number beside state dicts."""
    if not (isinstance(value, list | tuple) or (isinstance(value, Tensor) and value.numel == 1)):
        return False
    if _MEASURED.search(key):
        return True
    return isinstance(value, Tensor) and any(
        isinstance(other, dict) for other in islice((mapping_of(root) or {}).values(), 200)
    )
