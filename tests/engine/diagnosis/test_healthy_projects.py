"""What only looks alarming: no fault is told and the verdict is accept, in float16 as in bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from amptui import Case, Criteria, Policy, Project, Scaler, Update
from tests.engine.diagnosis.told import Batch, Net, argmax, ask, batches, brief, evaluated, rows, trained

TABLE: dict[str, Callable[[str], Project]] = {}


def healthy(make: Callable[[str], Project]) -> Callable[[str], Project]:
    TABLE[make.__name__] = make
    return make


def long() -> list[Batch]:
    """Enough batches for a default scale to settle and most updates to be applied."""
    return batches(16)


def default_scaler(dtype: str) -> Scaler | None:
    return Scaler() if dtype == "float16" else None


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


# The scale


@healthy
def first_updates_that_are_skipped(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return (model(batch["x"]).float().sum(-1) - batch["x"].sum(-1)).square().mean()

    return trained(Net(lambda h: h), batches(24), loss=loss, dtype=dtype, scaler=default_scaler(dtype), lr=1e-2)


@healthy
def growth_from_a_low_scale(dtype: str) -> Project:
    scaler = Scaler(init_scale=16.0, growth_interval=3) if dtype == "float16" else None
    return trained(Net(lambda h: h), batches(12), dtype=dtype, scaler=scaler)


@healthy
def growth_that_costs_one_update_now_and_then(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["x"]).float().square().mean()

    scaler = Scaler(init_scale=2.0**14, growth_interval=6) if dtype == "float16" else None
    return trained(
        Net(lambda h: h), batches(40), loss=loss, dtype=dtype, scaler=scaler, criteria=Criteria(applied_share=0.7)
    )


@healthy
def constant_scale(dtype: str) -> Project:
    scaler = Scaler(init_scale=128.0, growth_interval=10**9) if dtype == "float16" else None
    return trained(Net(lambda h: h), batches(12), dtype=dtype, scaler=scaler)


@healthy
def one_difficult_batch(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["x"]).float(), batch["y"]) * batch["w"]

    data = [{**b, "w": torch.tensor(2e3 if i == 9 else 1.0)} for i, b in enumerate(batches(20))]
    scaler = Scaler(init_scale=4096.0) if dtype == "float16" else None
    return trained(Net(lambda h: h), data, loss=loss, dtype=dtype, scaler=scaler, lr=1e-5)


@healthy
def window_with_one_difficult_micro_batch(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["x"]).float(), batch["y"]) * batch["w"]

    data = [{**b, "w": torch.tensor(1e3 if i == 9 else 1.0)} for i, b in enumerate(batches(48))]
    scaler = Scaler(init_scale=4096.0 * 16) if dtype == "float16" else None
    return trained(Net(lambda h: h), data, loss=loss, dtype=dtype, scaler=scaler, lr=1e-6, update={"accumulate": 4})


@healthy
def spike_of_the_loss(dtype: str) -> Project:
    return trained(Net(lambda h: h), batches(12, b6=25.0), dtype=dtype)


# Gradients


@healthy
def frozen_head(dtype: str) -> Project:
    model = Net(lambda h: h)
    model.enter.weight.requires_grad_(False)
    return trained(model, batches(8), dtype=dtype)


@healthy
def part_that_is_not_used(dtype: str) -> Project:
    model = Net(lambda h: h)
    model.spare = nn.Linear(3, 3)
    return trained(model, batches(8), dtype=dtype)


@healthy
def sparse_rows_of_an_embedding(dtype: str) -> Project:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.table, self.head = nn.Embedding(200, 8), nn.Linear(8, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.table(ids).mean(1))

    data = [
        {"x": torch.randint(0, 200, (6, 4), generator=torch.Generator().manual_seed(i)), "y": torch.arange(6) % 3}
        for i in range(8)
    ]
    return trained(Words(), data, dtype=dtype)


@healthy
def units_that_are_off(dtype: str) -> Project:
    return trained(Net(lambda h: torch.relu(h - 3.0) + 0.05 * h), batches(8), dtype=dtype)


@healthy
def batch_without_any_signal(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["x"]).float(), batch["y"]) * batch["on"]

    data = [{**b, "on": torch.tensor(float(i % 5 != 2))} for i, b in enumerate(batches(15))]
    return trained(Net(lambda h: h), data, loss=loss, dtype=dtype)


@healthy
def two_updates_with_one_scale(dtype: str) -> Project:
    torch.manual_seed(1)
    model = nn.ModuleDict({"a": nn.Linear(4, 3), "b": nn.Linear(4, 3)})

    def loss_of(name: str) -> Callable[[Any, Batch], Tensor]:
        return lambda m, b: F.cross_entropy(m[name](b["x"]).float(), b["y"])

    return Project(
        model=model,
        updates=[
            Update(
                optimizer=torch.optim.SGD(model["a"].parameters(), lr=1e-2), loss=loss_of("a"), name="a", clip_norm=1.0
            ),
            Update(optimizer=torch.optim.Adam(model["b"].parameters(), lr=1e-3), loss=loss_of("b"), name="b", every=2),
        ],
        batches=batches(10),
        policy=Policy(dtype=dtype, scaler=Scaler(init_scale=256.0) if dtype == "float16" else None),
    )


# State


@healthy
def batch_norm_in_training(dtype: str) -> Project:
    return trained(Net(nn.BatchNorm1d(8)), batches(40), dtype=dtype, scaler=default_scaler(dtype))


@healthy
def bias_that_a_norm_takes_away(dtype: str) -> Project:
    """Its gradient is zero but for rounding."""
    return trained(Net(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))), batches(6), dtype=dtype)


@healthy
def average_of_activations(dtype: str) -> Project:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(8))

        def forward(self, h: Tensor) -> Tensor:
            with torch.no_grad():
                self.mean.lerp_(h.float().mean(0), 0.1)
            return h - self.mean.to(h.dtype)

    return trained(Net(Average()), batches(8), dtype=dtype)


@healthy
def checkpointed_block(dtype: str) -> Project:
    inner = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 8))

    class Saved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, h: Tensor) -> Tensor:
            return checkpoint(self.inner, h, use_reentrant=False)  # type: ignore[no-any-return]

    return trained(Net(Saved()), batches(6), dtype=dtype)


@healthy
def dropout_in_training_alone(dtype: str) -> Project:
    model = Net(nn.Dropout(0.3))
    return trained(model, batches(6), dtype=dtype, cases=[Case(id="a", inputs=rows())])


@healthy
def region_that_casts(dtype: str) -> Project:
    class Precise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, h: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                return self.fc(h.float()) * 1e3 * 1e3 / 1e6

    return trained(Net(Precise()), batches(6), dtype=dtype)


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
@pytest.mark.parametrize("name", list(TABLE))
def test_no_false_alarm(name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask(TABLE[name](dtype), tmp_path, monkeypatch)
    told = "\n".join(map(brief, answer.findings))
    assert not answer.faults, told
    assert answer.reached.verdict == "accept", f"{answer.reached.words}\n{told}"
