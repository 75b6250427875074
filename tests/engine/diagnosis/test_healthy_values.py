"""Values that only look alarming: no fault is told and the verdict is accept, in float16 as in bfloat16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui import Criteria, Project, Scaler
from tests.engine.diagnosis.healthy import Healthy, default_scaler, long
from tests.engine.diagnosis.told import Batch, Net, argmax, batches, evaluated, rows, trained

healthy = Healthy()


# Infinities that are meant


@healthy
def causal_mask(dtype: str) -> Project:
    def attend(h: Tensor) -> Tensor:
        future = torch.ones(6, 6, dtype=torch.bool).triu(1)
        return torch.softmax((h @ h.T).masked_fill(future, float("-inf")), -1) @ h

    return trained(Net(attend), long(), dtype=dtype, scaler=default_scaler(dtype))


@healthy
def additive_mask_from_a_buffer(dtype: str) -> Project:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.full((6, 6), float("-inf")).triu(1))

        def forward(self, h: Tensor) -> Tensor:
            return torch.softmax(h @ h.T + self.mask, -1) @ h.float()

    return trained(Net(Masked()), batches(), dtype=dtype)


@healthy
def mask_of_minus_1e9_by_multiplication(dtype: str) -> Project:
    def attend(h: Tensor) -> Tensor:
        closed = torch.ones(6, 6).triu(1)
        return torch.softmax(h @ h.T + closed.to(h.dtype) * -1e9, -1) @ h

    return trained(Net(attend), batches(), dtype=dtype)


@healthy
def attention_of_torch_with_a_mask(dtype: str) -> Project:
    def attend(h: Tensor) -> Tensor:
        q = h[None, None]
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)[0, 0]

    return trained(Net(attend), batches(), dtype=dtype)


@healthy
def sentinel_for_a_running_maximum(dtype: str) -> Project:
    def best(h: Tensor) -> Tensor:
        top = torch.full((h.shape[0], 1), float("-inf"))
        for column in h.float().unbind(-1):
            top = torch.maximum(top, column[:, None])
        return h + top

    return trained(Net(best), batches(), dtype=dtype)


@healthy
def nearest_by_a_distance_that_starts_at_infinity(dtype: str) -> Project:
    def nearest(h: Tensor) -> Tensor:
        d = torch.cdist(h.float(), h.float()).detach() + torch.diag(torch.full((6,), float("inf")))
        return h + d.min(-1, keepdim=True).values.clamp(max=1.0) * 0.0 + 1.0

    return trained(Net(nearest), batches(), dtype=dtype)


@healthy
def output_that_is_minus_infinity_by_design(dtype: str) -> Project:
    def forbid(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).float().masked_fill(torch.tensor([False, False, True]), float("-inf"))

    return evaluated(Net(lambda h: h), {"a": rows() * 4}, dtype=dtype, outputs=forbid, decide=argmax)


@healthy
def log_of_zero_behind_a_where(dtype: str) -> Project:
    def safe(h: Tensor) -> Tensor:
        x = torch.relu(h.float())
        return torch.where(x > 0, torch.log(torch.where(x > 0, x, torch.ones_like(x)) + 1.0), torch.zeros_like(x))

    return trained(Net(safe), batches(), dtype=dtype)


@healthy
def log_of_zero_that_is_left_out(dtype: str) -> Project:
    def logs(h: Tensor) -> Tensor:
        with torch.no_grad():
            raw = torch.log(torch.relu(h.float()))
            level = torch.where(torch.isfinite(raw), raw, torch.zeros_like(raw)).clamp(-1, 1)
        return h + level

    return trained(Net(logs), batches(), dtype=dtype, criteria=Criteria(outputs={"loss": 0.1, "gradient": 0.3}))


@healthy
def connectionist_loss(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        logits = model(batch["x"]).float().log_softmax(-1)[:, None].expand(6, 2, 3)
        return F.ctc_loss(logits, torch.ones(2, 2, dtype=torch.long), torch.tensor([6, 6]), torch.tensor([2, 1]))

    return trained(Net(lambda h: h), batches(), loss=loss, dtype=dtype)


@healthy
def top_k_that_closes_the_rest(dtype: str) -> Project:
    def gate(h: Tensor) -> Tensor:
        best = (h.detach().float() * 2).topk(4, -1).indices
        closed = torch.full(h.shape, float("-inf")).scatter(-1, best, 0.0)
        return torch.softmax(h.float().detach() * 0 + closed, -1) * 2.0 + h

    def outputs(model: nn.Module, x: Tensor) -> Tensor:
        return model(x)

    return evaluated(
        Net(gate), {"a": rows(seed=77) * 3}, dtype=dtype, outputs=outputs, criteria=Criteria(atol=0.2, rtol=0.0)
    )


# Numbers


@healthy
def differences_in_the_third_digit(dtype: str) -> Project:
    stack = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8), nn.LayerNorm(8))
    return evaluated(Net(stack), {f"c{i}": rows(seed=i) for i in range(5)}, dtype=dtype)


@healthy
def norms_of_every_kind(dtype: str) -> Project:
    stack = nn.Sequential(
        nn.LayerNorm(8), nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2), nn.GroupNorm(1, 2), nn.Flatten()
    )
    return trained(Net(stack), batches(6), dtype=dtype)


@healthy
def recurrent_net(dtype: str) -> Project:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(8, 8, batch_first=True)

        def forward(self, h: Tensor) -> Tensor:
            return self.cell(h[:, None].expand(-1, 3, -1))[0][:, -1]

    return trained(Net(Recurrent()), batches(6), dtype=dtype)


@healthy
def tie_that_fp32_has_too(dtype: str) -> Project:
    model = Net(lambda h: h)
    with torch.no_grad():
        model.head.weight[2] = model.head.weight[0]
        model.head.bias[2] = model.head.bias[0]
        model.head.bias[1] = -50.0
    first = lambda out: [int((row == row.max()).nonzero()[0]) for row in out.float()]  # noqa: E731
    return evaluated(model, {"a": rows(), "b": rows(seed=8)}, dtype=dtype, decide=first)


@healthy
def decision_with_a_clear_margin(dtype: str) -> Project:
    def decide(out: Tensor) -> tuple[list[bool], float]:
        score = out.float()[:, 0]
        return (score > 0).tolist(), float(score.abs().min())

    model = Net(lambda h: h)
    return evaluated(model, {"a": torch.ones(2, 4), "b": -torch.ones(2, 4) * 3}, dtype=dtype, decide=decide)


@healthy
def one_changed_decision_that_is_allowed(dtype: str) -> Project:
    scores = torch.tensor([[1.0, 1.00005, 0.0]])
    model = Net(lambda h: h)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
        model.head.weight[:, 0] = scores[0]
    return evaluated(
        model, {"a": torch.ones(1, 4), "b": -torch.ones(1, 4)}, dtype=dtype, decide=argmax,
        criteria=Criteria(atol=0.05, rtol=0.0, decision_changes=1),
    )  # fmt: skip


@healthy
def losses_of_torch_on_logits(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        z = model(batch["x"]).float()
        hot = F.one_hot(batch["y"], 3).float()
        return (
            F.binary_cross_entropy_with_logits(z, hot)
            + F.kl_div(z.log_softmax(-1), hot, reduction="batchmean")
            + F.huber_loss(z, hot)
        )

    return trained(Net(lambda h: h), batches(8, b5=30.0), loss=loss, dtype=dtype)


@healthy
def large_values_in_a_float32_loss(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return torch.log1p((model(batch["x"]).float() * 1e4).square().mean())

    return trained(Net(lambda h: h), batches(8), loss=loss, dtype=dtype)


@healthy
def cosine_of_normalised_vectors(dtype: str) -> Project:
    def cosine(h: Tensor) -> Tensor:
        z = F.normalize(h.float(), dim=-1, eps=1e-6)
        return h * F.cosine_similarity(z, z.roll(1, 0), dim=-1)[:, None].clamp(-0.999, 0.999)

    return trained(Net(cosine), batches(8), dtype=dtype)


@healthy
def training_that_wanders_off_by_rounding(dtype: str) -> Project:
    stack = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    return trained(
        Net(stack), batches(40), dtype=dtype, lr=0.5, scaler=Scaler(init_scale=256.0) if dtype == "float16" else None
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", list(healthy))
def test_no_false_alarm(name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy.check(name, dtype, tmp_path, monkeypatch)
