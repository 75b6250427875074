"""Thirty-one small faults: where each began, as phase, op, module and line."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from amptui.engine.tracing import Origin, trace

HALF = torch.float16
INF = float("inf")


@dataclass
class Setting:
    """A model, the loss of one batch, and how it is run."""

    model: nn.Module
    loss: Callable[[nn.Module], Tensor]
    inputs: object = None
    dtype: torch.dtype | None = HALF
    scale: float = 1.0


def origins_of(setting: Setting) -> tuple[Origin, ...]:
    def run() -> Tensor:
        setting.model.zero_grad()
        with torch.autocast("cpu", setting.dtype or torch.bfloat16, enabled=setting.dtype is not None):
            loss = setting.loss(setting.model)
        (loss * setting.scale).backward()
        return loss

    traced = trace(run, modules=setting.model, inputs=setting.inputs)
    assert traced.error is None, traced.error
    assert traced.level == "op"
    gradients = {name: p.grad for name, p in setting.model.named_parameters()}
    return traced.blame(loss=traced.value, gradients=gradients)


class Functional(nn.Module):
    """A linear layer and a function of its output that runs inside `forward`."""

    def __init__(self, function: Callable[[Tensor], Tensor], weight: float = 1.0) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4, bias=False)
        nn.init.constant_(self.fc.weight, weight)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.fc(x))  # <- call_of_fc


def total(x: Tensor) -> Callable[[nn.Module], Tensor]:
    return lambda model: model(x).float().mean()


# Overflow in forward


def linear_overflow() -> Setting:
    return Setting(Functional(torch.relu, 30.0), total(torch.full((2, 4), 1000.0)))


def weight_cast() -> Setting:
    return Setting(Functional(torch.relu, 1e5), total(torch.full((2, 4), 1e-3)))


def activation_cast() -> Setting:
    return Setting(Functional(torch.relu, 1e-3), total(torch.full((2, 4), 2.48e5)))


def in_place_mul() -> Setting:
    def grow(h: Tensor) -> Tensor:
        return h.clone().mul_(60000.0)  # <- in_place_mul

    return Setting(Functional(grow), total(torch.ones(2, 4)))


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"hidden": x, "logits": self.inner(x)}


def dict_output() -> Setting:
    def burst(h: Tensor) -> Tensor:
        return torch.exp(h)  # <- dict_output

    model = Residual(Functional(burst, 4.0))
    return Setting(model, lambda m: m(torch.ones(2, 4))["logits"].float().mean())


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mha = nn.MultiheadAttention(8, 2, batch_first=True)
        nn.init.constant_(self.mha.in_proj_weight, 30.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.mha(x, x, x, need_weights=True)[0]  # <- multihead


def multihead_attention() -> Setting:
    return Setting(Attention(), total(torch.full((1, 3, 8), 40.0)))


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        nn.init.constant_(self.table.weight, 3e4)

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.table(ids).half()
        return rows + rows + rows  # <- embedding


def embedding() -> Setting:
    return Setting(Embedded(), total(torch.tensor([0, 3])))


def vmap() -> Setting:
    def square(row: Tensor) -> Tensor:
        return row * row  # <- vmap

    return Setting(Functional(torch.vmap(square), 100.0), total(torch.ones(2, 4)))


# NaN and infinity of the formula


def filled_row() -> Setting:
    def attend(h: Tensor) -> Tensor:
        hidden = h.masked_fill(torch.ones(4, dtype=torch.bool), -INF)  # <- filled_mask
        return torch.softmax(hidden, -1)  # <- filled_softmax

    return Setting(Functional(attend), total(torch.ones(2, 4)))


def softmax_of_added_row() -> Setting:
    def attend(h: Tensor) -> Tensor:
        bias = torch.full((4,), -INF, dtype=h.dtype)  # <- added_mask
        return torch.softmax(h + bias, -1)  # <- added_softmax

    return Setting(Functional(attend), total(torch.ones(2, 4)))


def log_of_zero() -> Setting:
    def loss(model: nn.Module) -> Tensor:
        h = model(torch.ones(2, 4))
        return (h - h).log().mean()  # <- log_of_zero

    return Setting(Functional(torch.relu), loss)


def zero_over_zero() -> Setting:
    def ratio(h: Tensor) -> Tensor:
        return (h - h) / (h - h)  # <- zero_over_zero

    return Setting(Functional(ratio), total(torch.ones(2, 4)))


def mean_of_empty() -> Setting:
    def loss(model: nn.Module) -> Tensor:
        h = model(torch.ones(2, 4))
        return h[h > 100].mean() + h.mean()  # <- mean_of_empty

    return Setting(Functional(torch.relu), loss)


def all_labels_ignored() -> Setting:
    def loss(model: nn.Module) -> Tensor:
        h = model(torch.ones(2, 4))
        return F.cross_entropy(h, torch.full((2,), -100))  # <- all_ignored

    return Setting(Functional(torch.relu), loss)


# Sources


def nan_input() -> Setting:
    x = torch.ones(2, 4)
    x[1, 2] = math.nan
    return Setting(Functional(torch.relu), total(x), inputs={"x": x})


def inf_parameter() -> Setting:
    model = Functional(torch.relu)
    with torch.no_grad():
        model.fc.weight[0, 0] = INF
    return Setting(model, total(torch.ones(2, 4)))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


def poisoned_buffer() -> Setting:
    model = Normed().eval()
    model.norm.running_var.fill_(math.nan)
    return Setting(model, total(torch.ones(2, 4)))


# Backward


def scale_overflow() -> Setting:
    def loss(model: nn.Module) -> Tensor:
        return (model(torch.ones(2, 4)).float() * 300).sum()  # <- scale_overflow

    return Setting(Functional(torch.relu, 0.1), loss, scale=4e4)


def where_around_sqrt() -> Setting:
    def safe_root(h: Tensor) -> Tensor:
        return torch.where(h > 0, torch.sqrt(h), torch.zeros_like(h))  # <- where_sqrt

    return Setting(Functional(safe_root, -1.0), total(torch.ones(2, 4)))


def where_around_log() -> Setting:
    def safe_log(h: Tensor) -> Tensor:
        h = h - 4  # zero everywhere
        return torch.where(h > 0, torch.log(h), torch.zeros_like(h))  # <- where_log

    return Setting(Functional(safe_log), total(torch.ones(2, 4)))


def norm_at_zero() -> Setting:
    def length(h: Tensor) -> Tensor:
        return (h - h).square().sum(-1).sqrt()  # <- norm_at_zero

    return Setting(Functional(length), total(torch.ones(2, 4)))


class BadDouble(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / (x - x)  # <- custom_backward


def custom_backward() -> Setting:
    return Setting(Functional(BadDouble.apply), total(torch.ones(2, 4)))


def mask_before_temperature() -> Setting:
    class Temperature(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.t = nn.Parameter(torch.tensor(0.5))

        def forward(self, x: Tensor) -> Tensor:
            hidden = x.masked_fill(torch.tensor([False, False, False, True]), -INF)
            return hidden / self.t  # <- temperature

    def loss(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(torch.ones(2, 4)), torch.zeros(2, dtype=torch.long))

    return Setting(Temperature(), loss)


def fp16_product_in_backward() -> Setting:
    def product(h: Tensor) -> Tensor:
        return h * 300.0  # <- product_in_backward

    return Setting(Functional(product, 0.01), lambda m: m(torch.ones(2, 4)).sum(), scale=300.0)


# Recomputation


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.first, self.inner, self.reentrant = nn.Linear(4, 4), inner, reentrant
        nn.init.constant_(self.first.weight, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, self.first(x), use_reentrant=self.reentrant)


def burst_in_block(h: Tensor) -> Tensor:
    return torch.exp(h * 100.0)  # <- checkpointed_exp


def root_in_block(h: Tensor) -> Tensor:
    return (h - h).sqrt()  # <- checkpointed_sqrt


def checkpoint_forward(reentrant: bool) -> Callable[[], Setting]:
    return lambda: Setting(Checkpointed(Functional(burst_in_block), reentrant), total(torch.ones(2, 4)))


def checkpoint_backward(reentrant: bool) -> Callable[[], Setting]:
    return lambda: Setting(Checkpointed(Functional(root_in_block), reentrant), total(torch.ones(2, 4)))


class FunctionalCheckpoint(nn.Module):
    """The repeated code is a plain function: in backward no module is being called."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inside, self.fc(x), use_reentrant=True)

    def inside(self, h: Tensor) -> Tensor:
        return (h - h).sqrt()  # <- functional_checkpoint


# Others


def bf16_overflow() -> Setting:
    def cube(h: Tensor) -> Tensor:
        return h * h * h  # <- bf16_cube

    return Setting(Functional(cube, 1e13), total(torch.ones(2, 4)), dtype=torch.bfloat16)


def fp32_formula() -> Setting:
    def burst(h: Tensor) -> Tensor:
        return torch.exp(h)  # <- fp32_exp

    return Setting(Functional(burst, 25.0), total(torch.ones(2, 4)), dtype=None)


def complex_division() -> Setting:
    def spectrum(h: Tensor) -> Tensor:
        z = torch.fft.rfft(h.float())
        return (z / (z - z)).real  # <- complex_division

    return Setting(Functional(spectrum), total(torch.ones(2, 4)))


def uninitialised_memory() -> Setting:
    def pad(h: Tensor) -> Tensor:
        out = torch.empty(2, 5)
        torch.from_numpy(out.numpy()).untyped_storage().copy_(torch.full((10,), math.nan).untyped_storage())
        return torch.cat([h, out], 1)  # <- memory

    return Setting(Functional(pad), total(torch.ones(2, 4)))


@dataclass
class Want:
    make: Callable[[], Setting]
    phase: str
    op: str
    module: str
    #: Mark of the line, or None for a source.
    at: str | None
    cause: str
    #: Name of the source, or op of the root.
    tensor: str | None = None
    root: str | None = None
    recomputed: bool = False


CASES = {
    "linear": Want(linear_overflow, "forward", "mm", "fc", "call_of_fc", "overflow"),
    "weight cast": Want(weight_cast, "forward", "to", "fc", "call_of_fc", "overflow"),
    "activation cast": Want(activation_cast, "forward", "to", "fc", "call_of_fc", "overflow"),
    "in-place": Want(in_place_mul, "forward", "mul_", "", "in_place_mul", "overflow"),
    "dict output": Want(dict_output, "forward", "exp", "inner", "dict_output", "overflow"),
    "multihead attention": Want(multihead_attention, "forward", "bmm", "mha", "multihead", "overflow"),
    "embedding": Want(embedding, "forward", "add", "", "embedding", "overflow"),
    "vmap": Want(vmap, "forward", "mul", "", "vmap", "overflow"),
    "filled row": Want(filled_row, "forward", "softmax", "", "filled_softmax", "invalid", root="masked_fill"),
    "added row": Want(softmax_of_added_row, "forward", "softmax", "", "added_softmax", "invalid", root="full"),
    "log of zero": Want(log_of_zero, "loss", "log", "loss", "log_of_zero", "pole"),
    "0/0": Want(zero_over_zero, "forward", "div", "", "zero_over_zero", "pole"),
    "mean of empty": Want(mean_of_empty, "loss", "mean", "loss", "mean_of_empty", "pole"),
    "labels ignored": Want(all_labels_ignored, "loss", "nll_loss", "loss", "all_ignored", "pole"),
    "nan input": Want(nan_input, "input", "", "", None, "source", tensor="input x"),
    "inf parameter": Want(inf_parameter, "weights", "", "fc", None, "source", tensor="weights fc.weight"),
    "nan buffer": Want(poisoned_buffer, "buffer", "", "norm", None, "source", tensor="buffer norm.running_var"),
    "scale": Want(scale_overflow, "backward", "to", "loss", "scale_overflow", "overflow"),
    "where around sqrt": Want(where_around_sqrt, "forward", "sqrt", "", "where_sqrt", "pole"),
    "where around log": Want(where_around_log, "backward", "log", "", "where_log", "pole"),
    "norm at zero": Want(norm_at_zero, "backward", "sqrt", "", "norm_at_zero", "pole"),
    "custom backward": Want(custom_backward, "backward", "div", "", "custom_backward", "pole"),
    "mask first": Want(mask_before_temperature, "backward", "div", "", "temperature", "invalid", root="masked_fill"),
    "product in backward": Want(fp16_product_in_backward, "backward", "mul", "", "product_in_backward", "overflow"),
    "checkpoint": Want(checkpoint_forward(False), "forward", "exp", "inner", "checkpointed_exp", "overflow"),
    "reentrant": Want(checkpoint_forward(True), "forward", "exp", "inner", "checkpointed_exp", "overflow"),
    "checkpoint, backward": Want(checkpoint_backward(False), "backward", "sqrt", "inner", "checkpointed_sqrt", "pole"),
    "reentrant, backward": Want(checkpoint_backward(True), "backward", "sqrt", "inner", "checkpointed_sqrt", "pole"),
    "checkpointed function": Want(
        lambda: Setting(FunctionalCheckpoint(), total(torch.ones(2, 4))),
        "backward", "sqrt", "", "functional_checkpoint", "pole",
    ),
    "bf16": Want(bf16_overflow, "forward", "mul", "", "bf16_cube", "overflow"),
    "fp32": Want(fp32_formula, "forward", "exp", "", "fp32_exp", "overflow"),
    "complex": Want(complex_division, "forward", "div", "", "complex_division", "pole"),
    "memory": Want(uninitialised_memory, "memory", "cat", "", "memory", "source", tensor="memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_first_origin(name: str, line_at: Callable[[str], str]) -> None:
    want = CASES[name]
    origins = origins_of(want.make())
    assert origins, "nothing was blamed"
    first = origins[0]
    assert (first.phase, first.op, first.module) == (want.phase, want.op, want.module)
    assert first.line == (line_at(want.at) if want.at else None)
    assert first.cause == want.cause
    assert first.tensor == want.tensor
    assert (first.root.op if first.root else None) == want.root
    assert first.reaches


def test_facts_of_the_op_are_told(line_at: Callable[[str], str]) -> None:
    first = origins_of(weight_cast())[0]
    [weight] = first.inputs
    assert (weight.name, weight.dtype, weight.shape) == ("weights fc.weight", "float32", (4, 4))
    assert weight.low == weight.high == pytest.approx(1e5)
    assert (first.dtype, first.kinds, first.api) == ("float16", ("inf",), "linear")
    assert first.exact == pytest.approx(1e5)
    assert first.source.startswith("return self.function(self.fc(x))")


def test_overflow_of_fp32_itself_has_no_finite_value_in_its_range() -> None:
    [first] = origins_of(fp32_formula())
    assert first.exact == pytest.approx(math.exp(100.0))
    assert first.exact > torch.finfo(torch.float32).max


def test_chain_leads_from_the_origin_to_the_loss() -> None:
    first = origins_of(filled_row())[0]
    assert [link.op for link in first.chain] == ["mean"]
    assert first.root is not None
    assert first.root.deliberate


def test_batch_norm_with_poisoned_statistics_and_a_nan_batch_names_both() -> None:
    model = Normed().eval()
    model.norm.running_var.fill_(math.nan)
    x = torch.full((2, 4), math.nan)
    origins = origins_of(Setting(model, total(x), inputs=[x]))
    assert {o.tensor for o in origins} == {"input 0", "buffer norm.running_var"}


def test_batch_norm_in_training_does_not_take_its_statistics_for_an_input() -> None:
    model = Normed()
    x = torch.ones(2, 4)
    x[0, 0] = math.nan
    origins = origins_of(Setting(model, total(x), inputs=[x]))
    assert [o.tensor for o in origins] == ["input 0"]
    assert model.norm.running_mean.isnan().any()


def test_poisoned_buffers_are_traced_to_what_poisoned_them() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    x = torch.full((2, 4), 1e6)

    def run() -> Tensor:
        with torch.autocast("cpu", HALF):
            return model(x).float().mean()

    found = trace(run, modules=model, inputs=[x])
    [first] = found.blame(buffers=dict(model.named_buffers()))
    assert (first.op, first.module, first.reaches) == ("to", "0", ("buffer 1.running_mean", "buffer 1.running_var"))


def test_statistics_that_were_bad_before_are_not_blamed_on_the_batch() -> None:
    model = Normed()
    model.norm.running_mean.fill_(math.nan)
    found = trace(lambda: model(torch.randn(3, 4)).mean(), modules=model)
    assert found.blame(loss=found.value) == ()
    [first] = found.blame(buffers=dict(model.named_buffers()))
    assert first.tensor == "buffer norm.running_mean"
