"""What a part of a checkpoint is, by its shape: a scheduler, the state of a generator, a run of numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from amptui.inspection.nodes import Node, Tensor

_SCHEDULER_NAME = re.compile(r"sched")


def named_scheduler(key: Node) -> bool:
    return isinstance(key, str) and _SCHEDULER_NAME.search(key.lower()) is not None


def is_scheduler(mapping: Mapping[Node, Node]) -> bool:
    keys = mapping.keys()
    return (
        ("last_epoch" in keys and bool({"_step_count", "base_lrs", "_last_lr"} & keys))
        or "last_batch_iteration" in keys
        or {"num_bad_epochs", "cooldown_counter"} <= keys
        or {"max_lr", "num_steps", "decay_style"} <= keys
        or {"max_lr", "num_steps", "lr_decay_style"} <= keys
        or ("lr_decay_style" in keys and "num_iters" in keys)
    )


def is_rng_tuple(node: Node) -> bool:
    """Python's random.getstate() and numpy's get_state()."""
    if not isinstance(node, tuple | list) or not node:
        return False
    if node[0] == "MT19937" if isinstance(node[0], str) else False:
        return True
    return len(node) == 3 and node[0] in (2, 3) and isinstance(node[1], tuple | list) and len(node[1]) == 625


def plain_numbers(items: object) -> bool:
    """A long run of bare numbers (an RNG state, a log) is one line of the tree, not thousands."""
    return isinstance(items, list | tuple) and len(items) > 32 and all(isinstance(item, int | float) for item in items)


def generator_of(tensor: Tensor, place: str) -> str:
    """Which generator a byte tensor is the state of: 5,056 bytes for the CPU's, 16 for a CUDA device's."""
    if tensor.dtype != "uint8" or len(tensor.shape) != 1:
        return ""
    if tensor.numel == 5056:
        return "cpu"
    return "cuda" if tensor.numel in (16, 816) and re.search(r"cuda|rng|seed|random", place.lower()) else ""
