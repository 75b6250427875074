"""Overflow, underflow and lost digits in forward and loss: which op, in which module, on which line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui import Project
from tests.engine.diagnosis.told import Batch, Block, Net, Says, ask, batches, trained

Made = tuple[Callable[[], Project], Says]
TABLE: dict[str, Made] = {}


def fault(**says: object) -> Callable[[Callable[[], Project]], Callable[[], Project]]:
    def note(make: Callable[[], Project]) -> Callable[[], Project]:
        TABLE[make.__name__] = make, Says(**says)  # type: ignore[arg-type]
        return make

    return note


# Overflow inside of a module: one batch is large


@fault(kind="overflow", stage="forward", module="block", op=("einsum", "bmm"), step=2, here=True)
def scores_by_einsum_before_they_are_scaled() -> Project:
    def attend(h: Tensor) -> Tensor:
        parts = h.unflatten(-1, (2, 4))
        scores = torch.einsum("bqd,bkd->bqk", parts, parts)  # here
        return (torch.softmax(scores / 2e4, -1) @ parts).flatten(1)

    return trained(Net(attend), batches(b2=300.0))


@fault(kind="overflow", stage="forward", module="block", op="pow", step=2, here=True)
def fourth_power() -> Project:
    def kurtosis(h: Tensor) -> Tensor:
        fourth = h.pow(4)  # here
        return torch.log1p(fourth)

    return trained(Net(kurtosis), batches(b2=40.0))


@fault(kind="overflow", stage="forward", module="block", op="exp", step=2, here=True)
def logsumexp_by_hand() -> Project:
    def normalised(h: Tensor) -> Tensor:
        total = torch.exp(h).sum(-1, keepdim=True)  # here
        return h - torch.log(total)

    return trained(Net(normalised), batches(b2=12.0))


@fault(kind="overflow", stage="forward", module="block", op="cumsum", step=2, here=True)
def running_sum() -> Project:
    def running(h: Tensor) -> Tensor:
        total = h.abs().cumsum(-1)  # here
        return total / total[:, -1:]

    return trained(Net(running), batches(b2=3e4))


@fault(kind="overflow", stage="forward", module="block", op="mul", step=2, here=True)
def product_of_likelihoods() -> Project:
    def product(h: Tensor) -> Tensor:
        volume = h[:, 0] * h[:, 1] * h[:, 2]  # here
        return h + torch.log1p(volume.abs())[:, None]

    return trained(Net(product), batches(b2=200.0))


@fault(kind="overflow", stage="forward", module="block", op="sum", step=2, here=True)
def pooling_by_sum() -> Project:
    def pool(h: Tensor) -> Tensor:
        total = h.repeat(1, 40).abs().sum(-1, keepdim=True)  # here
        return h + torch.log1p(total)

    return trained(Net(pool), batches(b2=4e3))


@fault(kind="overflow", stage="forward", module="block.1", op=("conv1d", "convolution"), step=2)
def convolution_in_front_of_a_batch_norm() -> Project:
    stack = nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 2, 3, padding=1), nn.BatchNorm1d(2), nn.Flatten())
    with torch.no_grad():
        stack[1].weight.mul_(3e3)
    return trained(Net(stack), batches(b2=2e2))


@fault(kind="overflow", stage="forward", module="block.0", op=("conv_transpose2d", "convolution"), step=2)
def transposed_convolution() -> Project:
    up = nn.ConvTranspose2d(8, 8, 2)
    with torch.no_grad():
        up.weight.mul_(1e3)
    stack = nn.Sequential(up, nn.GroupNorm(2, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = Net(Block(lambda h: h))
    model.block = nn.Sequential(up, *stack[1:])

    def loss(net: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(net.head(net.block(net.enter(batch["x"])[:, :, None, None])).float(), batch["y"])

    return trained(model, batches(b2=5e2), loss=loss)


@fault(kind="overflow", stage="forward", module="block", op=("baddbmm", "bmm"), step=2, here=True)
def baddbmm_with_a_scale_that_comes_too_late() -> Project:
    def attend(h: Tensor) -> Tensor:
        parts = h.unflatten(-1, (2, 4))
        scores = torch.baddbmm(h.new_zeros(1, 2, 2), parts, parts.mT, alpha=1.0)  # here
        return (torch.softmax(scores * 1e-5, -1) @ parts).flatten(1)

    return trained(Net(attend), batches(b2=300.0))


@fault(kind="overflow", stage="forward", module="enter", op=("to", "linear"), step=2)
def input_beyond_the_range() -> Project:
    return trained(Net(nn.LayerNorm(8)), batches(b2=1e6))


@fault(kind="overflow", stage="forward", module="block", op=("softplus", "exp", "log1p"), step=2, here=True)
def softplus_by_hand() -> Project:
    def softplus(h: Tensor) -> Tensor:
        grown = torch.exp(h)  # here
        return torch.log(1 + grown)

    return trained(Net(softplus), batches(b2=12.0))


@fault(kind="overflow", stage="forward", module="block", op=("rnn", "mul", "pow", "square"), step=2, here=True)
def rms_norm_by_hand_that_shows() -> Project:
    def norm(h: Tensor) -> Tensor:
        square = h * h  # here
        size = square.mean(-1, keepdim=True)
        return h * torch.rsqrt(size) * torch.log(size)

    return trained(Net(norm), batches(b2=600.0))


@fault(kind="overflow", stage="forward", module="block.recurrent", op=("linear", "addmm"), step=2)
def projection_in_front_of_a_recurrent_net() -> Project:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = nn.Linear(8, 8)
            self.cell = nn.GRUCell(8, 8)

        def forward(self, h: Tensor) -> Tensor:
            return self.cell(F.layer_norm(self.recurrent(h).float(), (8,)))

    block = Recurrent()
    with torch.no_grad():
        block.recurrent.weight.mul_(1e4)
    return trained(Net(block), batches(b2=1e2))


# Overflow in the loss


@fault(kind="overflow", stage="loss", module="loss", op=("pow", "square", "mul"), step=2, here=True)
def squared_error_by_hand() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        apart = model(batch["x"]) - 1.0
        return (apart**2).mean().sqrt()  # here

    return trained(Net(lambda h: h), batches(b2=3e3), loss=loss)


@fault(kind="overflow", stage="loss", module="loss", op="sum", step=2, here=True)
def dice_over_a_large_picture() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        p = torch.sigmoid(model(batch["x"])).repeat_interleave(int(batch["pixels"]), 0)
        union = p.sum() + (p * 0.5).sum()  # here
        return 1 - 2 * (p[:, 0] * 0.5).sum() / union

    data = [{**b, "pixels": torch.tensor(17000 if i == 2 else 100)} for i, b in enumerate(batches())]
    return trained(Net(lambda h: h), data, loss=loss)


@fault(kind="overflow", stage="loss", module="loss", op="exp", step=2, here=True)
def contrastive_with_a_low_temperature() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        z = F.normalize(model(batch["x"]).float(), dim=-1)
        sim = (z @ z.t()) / batch["t"]
        positive = torch.exp(sim)  # here
        return -torch.log(positive.diagonal() / positive.sum(-1)).mean()

    data = [{**b, "t": torch.tensor(0.07 if i == 2 else 0.5, dtype=torch.float16)} for i, b in enumerate(batches())]
    return trained(Net(lambda h: h), data, loss=loss)


@fault(kind="overflow", stage="loss", module="loss", op=("mul", "pow"), step=2, here=True)
def huber_with_a_square_beyond_its_delta() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        r = model(batch["x"]).abs()
        square = 0.5 * (r * r)  # here
        return torch.minimum(square, 1e4 * r).mean() + (square - square).mean()

    return trained(Net(lambda h: h), batches(b2=3e3), loss=loss)


@fault(kind="overflow", stage="loss", module="loss", op="mul", step=2, here=True)
def union_of_boxes() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        wide, high, _ = model(batch["x"]).abs().unbind(-1)
        area = wide * high  # here
        return (area / (area + 1.0)).mean()

    return trained(Net(lambda h: h), batches(b2=3e3), loss=loss)


# Underflow and lost digits that end in a pole


@fault(kind="underflow", stage="loss", module="loss", op="log", step=2, here=True)
def cross_entropy_of_probabilities_with_a_tiny_eps() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        p = torch.sigmoid(model(batch["x"]))
        return -torch.log(p + 1e-9).mean()  # here

    return trained(Net(lambda h: h), batches(b2=2e2), loss=loss)


@fault(kind="rounding", stage="loss", module="loss", op="log", step=2, here=True)
def log_of_one_minus_a_saturated_probability() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        p = torch.sigmoid(model(batch["x"]).clamp(-6, 12))
        return -torch.log(1 - p).mean()  # here

    return trained(Net(lambda h: h), batches(b2=40.0), loss=loss)


@fault(kind="underflow", stage="loss", module="loss", op=("div", "reciprocal", "log"), step=2, here=True)
def divergence_by_hand() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        q = torch.sigmoid(model(batch["x"]).clamp(-25, 9))
        return (0.5 * torch.log(0.5 / q)).mean()  # here

    return trained(Net(lambda h: h), batches(b2=2e2), loss=loss)


@fault(kind="underflow", stage="forward", module="block", op=("div", "reciprocal"), step=2, here=True)
def one_over_a_tiny_value() -> Project:
    def inverse(h: Tensor) -> Tensor:
        small = h.abs() + 0.1 * h[:, :1].abs() * (h[:, :1].abs() > 1e-2)
        return torch.log1p(1.0 / small)  # here

    return trained(Net(inverse), batches(b2=torch.full((6, 4), 1e-9)))


@fault(kind="underflow", stage="forward", module="block", op="div", step=2, here=True)
def vector_over_its_own_length() -> Project:
    def unit(h: Tensor) -> Tensor:
        size = (h * h).sum(-1, keepdim=True).sqrt()
        return h / size  # here

    return trained(Net(unit), batches(b2=1e-5))


@fault(kind="underflow", stage="forward", module="block", op="div", step=2, here=True)
def instance_norm_with_an_eps_that_is_zero() -> Project:
    def norm(h: Tensor) -> Tensor:
        d = h - h.mean(-1, keepdim=True)
        return d / ((d * d).mean(-1, keepdim=True) + 1e-8).sqrt()  # here

    return trained(Net(norm), batches(b2=torch.zeros(6, 4)))


@fault(kind="underflow", stage="forward", module="block", op="div", step=2, here=True)
def cosine_with_an_eps_that_is_zero() -> Project:
    def cosine(h: Tensor) -> Tensor:
        one = h.norm(dim=-1, keepdim=True).half() if h.dtype != torch.float32 else h.norm(dim=-1, keepdim=True)
        return h * ((h[:, :1] * h[:, 1:2]) / (one * one + 1e-8))  # here

    return trained(Net(cosine), batches(b2=torch.zeros(6, 4)))


@fault(kind=("rounding", "underflow"), stage="gradient", module="block", op="sqrt", step=2, here=True)
def variance_as_a_difference_of_large_numbers() -> Project:
    def deviation(h: Tensor) -> Tensor:
        x = h[:, :4]
        spread = (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2
        return h + spread.sqrt()  # here

    odd = torch.tensor([14.31, 14.30, 14.29, 14.32]).repeat(6, 1) * torch.linspace(1.0, 1.3, 6)[:, None]
    return trained(Net(deviation), batches(b2=odd))


@fault(kind="rounding", stage="forward", module="block", op=("acos", "arccos"), step=0, here=True)
def angle_between_nearly_equal_vectors() -> Project:
    def angle(h: Tensor) -> Tensor:
        a, b = h[:, :4], h[:, :4] * 1.001
        dot = (a * b).sum(-1) / ((a * a).sum(-1).sqrt() * (b * b).sum(-1).sqrt())
        return h + torch.acos(dot * 0.9999)[:, None]  # here

    generator = torch.Generator().manual_seed(2)
    return trained(Net(angle), batches(b2=torch.rand(6, 4, generator=generator) * 3))


@fault(kind="rounding", stage="forward", module="block", op="atanh", step=2, here=True)
def atanh_of_a_value_that_became_one() -> Project:
    def stretch(h: Tensor) -> Tensor:
        return torch.atanh(torch.tanh(h) * 0.99999)  # here

    return trained(Net(stretch), batches(b2=4.0))


# Masks


@fault(kind="overflow", stage="forward", module="block", op=("softmax", "mul"), step=2)
def row_that_is_masked_with_minus_1e9() -> Project:
    def attend(h: Tensor) -> Tensor:
        closed = (h[:, :1] > 50).expand(-1, 8)
        return torch.softmax(h + closed.to(h.dtype) * -1e9, -1)

    return trained(Net(attend), batches(b2=torch.full((6, 4), 60.0)))


@fault(kind="overflow", stage="forward", module="block", op=("softmax", "add"), step=2)
def two_masks_of_the_least_value_that_add_up() -> Project:
    def attend(h: Tensor) -> Tensor:
        least = torch.finfo(h.dtype).min
        closed = (h[:, :1] > 50).expand(-1, 8)
        one = torch.zeros_like(h).masked_fill(closed, least / 2 if h.dtype == torch.float32 else least)
        return torch.softmax(h + one + one, -1)

    return trained(Net(attend), batches(b2=torch.full((6, 4), 60.0)))


# bfloat16 has the range and lacks the digits


@fault(kind="rounding", stage="forward", module="block", op=("div", "reciprocal"), step=0, here=True)
def difference_that_bfloat16_cannot_see() -> Project:
    def slope(h: Tensor) -> Tensor:
        near = h * 1.001
        return h + 1e-6 / (near - h)  # here

    return trained(Net(slope), batches(b2=torch.full((6, 4), 3.0)), dtype="bfloat16")


@fault(kind="autocast_state", stage="forward", module="block.fc", op=("linear", "addmm"), step=2)
def float16_inside_of_a_bfloat16_run() -> Project:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
            with torch.no_grad():
                self.fc.weight.mul_(3e3)

        def forward(self, h: Tensor) -> Tensor:
            with torch.autocast(h.device.type, dtype=torch.float16):
                h = self.fc(h)
            return self.norm(h.float())

    return trained(Net(Inner()), batches(b2=1e2), dtype="bfloat16")


@fault(
    kind="autocast_state",
    stage="forward",
    module="block",
    op=("half", "to"),
    step=2,
    here=True,
    fp32_ok=False,
    verdict="inconclusive",
)
def half_written_by_hand_in_a_bfloat16_run() -> Project:
    def narrow(h: Tensor) -> Tensor:
        return F.layer_norm(h.half().float(), (8,))  # here

    return trained(Net(narrow), batches(b2=1e5), dtype="bfloat16")


@pytest.mark.parametrize("name", list(TABLE))
def test_the_leading_finding(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, says = TABLE[name]
    ask(make(), tmp_path, monkeypatch).check(says)
