"""Optimizer states by their shape: torch's `{state, param_groups}`, fastai's `{state, hypers}`, ZeRO's partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from amptui.inspection.nodes import Node, Tensor, mapping_of, sequence_of

_MAX_ENTRIES = 50_000


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """What an optimizer had remembered. `steps` counts updates per parameter, as far as it counts them."""

    path: str
    #: Parameters with a state of their own.
    entries: int
    lowest_step: int | None
    highest_step: int | None
    #: dtypes in which step counters are stored as tensors.
    step_dtypes: frozenset[str]
    learning_rates: tuple[float, ...]
    #: Names of what is kept per parameter (exp_avg, momentum_buffer, …).
    slots: tuple[str, ...]


def is_optimizer(mapping: Mapping[Node, Node]) -> bool:
    """Whether a mapping has the shape of an optimizer's state dict."""
    return "state" in mapping and ("param_groups" in mapping or "hypers" in mapping)


def optimizer_at(
    path: str, mapping: Mapping[Node, Node], number: Callable[[Node], int | float | None]
) -> OptimizerState:
    """Read the optimizer state `mapping` at `path`."""
    groups = list(_members(mapping.get("param_groups", mapping.get("hypers"))))
    counters: list[Node] = []
    slots: dict[str, None] = {}
    entries = 0
    for entry in _members(mapping.get("state")):
        if entries >= _MAX_ENTRIES:
            break
        entries += 1
        slots.update(dict.fromkeys(key for key in entry if isinstance(key, str) and key != "step"))
        if "step" in entry:
            counters.append(entry["step"])
    if not counters:  # fused optimizers of apex and Megatron count per group
        counters = [group["step"] for group in groups if "step" in group]
    steps = [int(step) for step in map(number, counters) if step is not None and abs(step) < 1e15]
    rates = [rate for rate in (number(group.get("lr")) for group in groups) if rate is not None]
    return OptimizerState(
        path=path,
        entries=entries,
        lowest_step=min(steps, default=None),
        highest_step=max(steps, default=None),
        step_dtypes=frozenset(counter.dtype for counter in counters if isinstance(counter, Tensor)),
        learning_rates=tuple(float(rate) for rate in dict.fromkeys(rates))[:20],
        slots=tuple(slots)[:20],
    )


def _members(node: Node) -> Iterable[Mapping[Node, Node]]:
    """The mappings that a mapping or a sequence holds."""
    mapping = mapping_of(node)
    values = mapping.values() if mapping else sequence_of(node) or ()
    for value in values:
        inner = mapping_of(value)
        if inner is not None:
            yield inner
