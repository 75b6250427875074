"""From a training batch to the inputs of single cases: what a batch holds beside them is the project's own affair.

What the loss hands to the model is tried first, then the batch itself and its first entry: the first form that the
project's `outputs` can evaluate is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amptui.engine.bench import Bench
from amptui.engine.evaluate import OutputsRefused, call_outputs, eval_mode, named_outputs
from amptui.engine.nested import map_tensors, tensors_in
from amptui.engine.replay import untouched


@dataclass(frozen=True, eq=False)
class InputForm:
    """How inputs are made of a batch; `words` say it."""

    words: str
    inputs_of: Callable[[Any], Any]


def input_form(bench: Bench) -> InputForm | None:
    """The first form of which `outputs` makes tensors for a single sample; None where there is none."""
    batch = next(iter(bench.live.batches.window(0)))
    for form in _forms(bench):
        try:
            inputs = form.inputs_of(batch)
            if samples_in(inputs) and _can_evaluate(bench, sample_of(inputs, 0)):
                return form
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError):
            continue  # the next form is tried
    return None


def _forms(bench: Bench) -> tuple[InputForm, ...]:
    return (
        InputForm("what the loss gives to the model", lambda batch: _captured(bench, batch)),
        InputForm("the batch", lambda batch: batch),
        InputForm("the batch's first entry", _first),
        InputForm("the batch without its last entry", lambda batch: tuple(batch[:-1])),
    )


def _first(batch: Any) -> Any:
    return next(iter(batch.values())) if isinstance(batch, Mapping) else batch[0]


class _Captured(Exception):
    """Leaves the loss as soon as the model is called."""

    def __init__(self, inputs: Any) -> None:
        super().__init__()
        self.inputs = inputs


def _captured(bench: Bench, batch: Any) -> Any:
    """The arguments with which the loss calls the model: one tensor, a tuple of positions, or a dict of keywords."""
    live = bench.live
    if not isinstance(live.model, nn.Module) or not live.updates:
        raise TypeError("only the call of a single model can be captured")

    def before(_module: nn.Module, positions: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        raise _Captured(_joined(positions, keywords))

    hook = live.model.register_forward_pre_hook(before, with_kwargs=True)
    try:
        with untouched(live), torch.no_grad():
            live.updates[0].update.loss(live.model, batch)
    except _Captured as captured:
        return captured.inputs
    finally:
        hook.remove()
    raise ValueError("the loss does not call the model")


def _joined(positions: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    if positions and keywords:
        raise TypeError("positions and keywords cannot be told apart in the inputs of a case")
    if keywords:
        return dict(keywords)
    return positions[0] if len(positions) == 1 else positions


def _can_evaluate(bench: Bench, inputs: Any) -> bool:
    try:
        with untouched(bench.live), eval_mode(bench.live.modules), torch.no_grad():
            return bool(named_outputs(call_outputs(bench.live, inputs)))
    except OutputsRefused:
        return False
    except Exception:  # whatever the project's code raises on inputs of another form
        return False
    finally:
        bench.start.restore()


def samples_in(inputs: Any) -> int:
    """The batch's length: the first dimension of the first tensor that has one; 0 without any."""
    return next((tensor.shape[0] for tensor in tensors_in(inputs) if tensor.dim()), 0)


def sample_of(inputs: Any, index: int) -> Any:
    """The inputs with only sample `index` in every tensor that has one entry a sample; the dimension stays."""
    count = samples_in(inputs)

    def one(tensor: Tensor) -> Tensor:
        batched = tensor.dim() and tensor.shape[0] == count
        return tensor[index : index + 1].clone() if batched else tensor.clone()

    return map_tensors(inputs, one)


def is_mask(tensor: Tensor) -> bool:
    """Whether the tensor says which entries count: bool, or whole numbers that are 0 and 1 over more than one place."""
    if tensor.dtype == torch.bool:
        return True
    if tensor.is_floating_point() or tensor.is_complex() or tensor.numel() < 2:
        return False
    return bool(((tensor == 0) | (tensor == 1)).all())
