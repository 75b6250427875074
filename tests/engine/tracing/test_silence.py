"""What is infinite on purpose is no fault, and a trace leaves the run as it was."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui.engine.tracing import Trace, trace

INF = math.inf


class Net(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fc, self.function = nn.Linear(4, 4), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.fc(x))


def run_of(model: nn.Module, loss: Callable[[Tensor], Tensor], inputs: object = None) -> Trace:
    def run() -> Tensor:
        model.zero_grad()
        with torch.autocast("cpu", torch.float16):
            value = loss(model(torch.randn(3, 4)))
        value.backward()
        return value

    return trace(run, modules=model, inputs=inputs)


CAUSAL = torch.ones(3, 3, dtype=torch.bool).triu(1)


def attend(scores: Tensor) -> Tensor:
    return torch.softmax(scores, -1)


def by_fill(h: Tensor) -> Tensor:
    return attend((h @ h.t()).masked_fill(CAUSAL, -INF))


def by_bias(h: Tensor) -> Tensor:
    return attend(h @ h.t() + torch.full((3, 3), -INF).triu(1))


def by_where(h: Tensor) -> Tensor:
    return attend(torch.where(CAUSAL, -INF, h @ h.t()))


def by_log_of_mask(h: Tensor) -> Tensor:
    return attend(h @ h.t() + torch.log((~CAUSAL).float()))


def by_lowest_fp32(h: Tensor) -> Tensor:
    bias = torch.zeros(3, 3).masked_fill(CAUSAL, torch.finfo(torch.float32).min)
    return attend(h @ h.t() + bias.half())


def by_minus_1e9(h: Tensor) -> Tensor:
    return attend(h @ h.t() + (CAUSAL.float() * -1e9).half())


def by_added_lowest(h: Tensor) -> Tensor:
    low = torch.zeros(3, 3).masked_fill(CAUSAL, torch.finfo(torch.float16).min).half()
    return attend(h @ h.t() + low + low)


def running_maximum(h: Tensor) -> Tensor:
    best = torch.full_like(h[0], -INF)
    for row in h:
        best = torch.maximum(best, row)
    return best


def clamped_sentinel(h: Tensor) -> Tensor:
    return h.clamp(min=-INF, max=INF)


def sdpa_with_masked_row(h: Tensor) -> Tensor:
    mask = torch.zeros(3, 3, dtype=torch.bool)
    mask[0, 0] = True
    q = h[None, None]
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def without_nan_labels(h: Tensor) -> Tensor:
    labels = torch.tensor([1.0, math.nan, 2.0])
    known = ~labels.isnan()
    return (h[known, 0] - labels[known]).square()


def with_nan_labels_replaced(h: Tensor) -> Tensor:
    labels = torch.tensor([1.0, math.nan, 2.0])
    return (h[:, 0] - torch.nan_to_num(labels)).square()


MEANT = [
    by_fill,
    by_bias,
    by_where,
    by_log_of_mask,
    by_lowest_fp32,
    by_minus_1e9,
    by_added_lowest,
    running_maximum,
    clamped_sentinel,
    sdpa_with_masked_row,
    without_nan_labels,
    with_nan_labels_replaced,
]


@pytest.mark.parametrize("function", MEANT, ids=lambda f: f.__name__)
def test_nothing_is_blamed(function: Callable[[Tensor], Tensor]) -> None:
    model = Net(function)
    found = run_of(model, lambda out: out.float().square().mean())
    assert found.error is None
    gradients = {n: p.grad for n, p in model.named_parameters()}
    assert math.isfinite(found.value.item()) or function is sdpa_with_masked_row
    assert found.blame(loss=found.value, gradients=gradients) == ()
    assert found.healed(loss=found.value, gradients=gradients) == ()


def test_ctc_alignment_table_is_scratch() -> None:
    model = Net(lambda h: F.log_softmax(h.float(), -1))
    lengths = torch.tensor([3])

    def loss(out: Tensor) -> Tensor:
        return F.ctc_loss(out[:, None], torch.tensor([[1, 2]]), lengths, torch.tensor([2]))

    found = run_of(model, loss)
    assert found.blame(loss=found.value, gradients={n: p.grad for n, p in model.named_parameters()}) == ()
    assert found.healed(loss=found.value) == ()


def test_a_slice_beside_the_infinity_is_clean() -> None:
    def beside(h: Tensor) -> Tensor:
        padded = torch.cat([h, torch.full_like(h[:, :1], INF)], 1)
        return padded[:, :4] * 60000.0  # <- beside

    model = Net(beside)
    nn.init.constant_(model.fc.bias, 50.0)
    found = run_of(model, lambda out: out.float().mean())
    [first] = found.blame(loss=found.value)
    assert (first.op, first.cause) == ("mul", "overflow")
    assert first.root is None


def test_infinity_that_is_overwritten_taints_no_more() -> None:
    def overwrite(h: Tensor) -> Tensor:
        scratch = torch.full_like(h, INF)
        scratch.copy_(h)
        return scratch

    model = Net(overwrite)
    found = run_of(model, lambda out: (out / (out - out)).float().mean())
    [first] = found.blame(loss=found.value)
    assert (first.op, first.root) == ("div", None)


def test_deliberate_infinity_that_reaches_the_loss_is_blamed_as_such() -> None:
    model = Net(lambda h: h.masked_fill(torch.tensor([True, False, False, False]), -INF))
    found = run_of(model, lambda out: F.cross_entropy(out, torch.zeros(3, dtype=torch.long)))
    [first] = found.blame(loss=found.value)
    assert first.deliberate
    assert first.op == "masked_fill"
    assert first.chain[-1].op == "nll_loss"


def test_sites_of_a_healthy_run_are_accepted_in_another() -> None:
    def model_of(rows: Tensor) -> Net:
        return Net(lambda h: attend(h @ h.t() + torch.log(rows)))

    healthy = torch.ones(3, 3).tril()
    broken = healthy.clone()
    broken[1] = 0  # a whole row
    accepted = run_of(model_of(healthy), lambda out: out.float().mean()).sites()
    found = run_of(model_of(broken), lambda out: out.float().mean())
    [naive] = found.blame(loss=found.value)
    [learned] = found.blame(loss=found.value, accepted=accepted)
    assert naive.op == "log"
    assert learned.op == "softmax"
    assert learned.root is not None
    assert learned.root.op == "log"


def test_additive_mask_among_the_inputs_is_meant() -> None:
    mask = torch.full((3, 3), -INF).triu(1)
    model = Net(lambda h: attend(h @ h.t() + mask))
    found = run_of(model, lambda out: out.float().mean(), inputs={"mask": mask})
    assert found.blame(loss=found.value) == ()
    mask[0] = -INF
    found = run_of(model, lambda out: out.float().mean(), inputs={"mask": mask})
    [first] = found.blame(loss=found.value)
    assert first.op == "softmax"
    assert first.root is not None
    assert first.root.tensor == "input mask"


def test_trace_changes_no_bit() -> None:
    def build() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))

    def run(model: nn.Module) -> Tensor:
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(torch.randn(4, 6) * 1e4), torch.tensor([0, 1, 0, 1]))
        (loss * 65536.0).backward()
        return loss

    plain, watched = build(), build()
    expected = run(plain)
    state = torch.get_rng_state()
    found = trace(lambda: run(watched), modules=watched)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(expected, found.value)
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(a.grad.view(torch.int32), b.grad.view(torch.int32))
    for a, b in zip(plain.buffers(), watched.buffers(), strict=True):
        assert torch.equal(a, b)
