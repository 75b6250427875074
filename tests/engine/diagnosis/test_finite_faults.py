"""Outputs, losses and decisions that are finite and wrong: hidden overflow, lost digits, flipped choices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui import Criteria, Project
from tests.engine.diagnosis.told import Batch, Block, Net, Says, argmax, ask, batches, evaluated, rows, trained

Made = tuple[Callable[[], Project], Says]
TABLE: dict[str, Made] = {}


def fault(**says: object) -> Callable[[Callable[[], Project]], Callable[[], Project]]:
    def note(make: Callable[[], Project]) -> Callable[[], Project]:
        TABLE[make.__name__] = make, Says(**says)  # type: ignore[arg-type]
        return make

    return note


NEAR = Criteria(atol=0.02, rtol=0.0)


def cases(**scales: float) -> dict[str, Tensor]:
    return {name: rows(seed=40 + i, scale=scale) for i, (name, scale) in enumerate(scales.items())}


# Overflow that a later op makes finite


@fault(kind="overflow", stage="forward", module="block", op="mul", case="large", step=1, here=True)
def root_mean_square_norm_by_hand() -> Project:
    def norm(h: Tensor) -> Tensor:
        square = h * h  # here
        return h * torch.rsqrt(square.mean(-1, keepdim=True) + 1e-5)

    return evaluated(Net(norm), cases(small=1.0, large=600.0), criteria=NEAR)


@fault(kind="overflow", stage="forward", module="block", op="pow", case="large", step=1, here=True)
def length_by_a_square() -> Project:
    def unit(h: Tensor) -> Tensor:
        return h / h.pow(2).sum(-1, keepdim=True).sqrt()  # here

    return evaluated(Net(unit), cases(small=1.0, large=600.0), criteria=NEAR)


@fault(kind="overflow", stage="forward", module="block", op="sum", case="large", step=1, here=True)
def mean_as_a_sum_and_a_quotient() -> Project:
    def centred(h: Tensor) -> Tensor:
        return h / h.abs().repeat(1, 30).sum(-1, keepdim=True) * 8  # here

    return evaluated(Net(centred), cases(small=1.0, large=3e3), criteria=NEAR)


@fault(kind="overflow", stage="forward", module="block", op="exp", case="large", step=1, here=True)
def sigmoid_by_hand() -> Project:
    def sigmoid(h: Tensor) -> Tensor:
        grown = torch.exp(h)  # here
        return 100 * h / (1 + grown)

    return evaluated(Net(sigmoid), cases(small=1.0, large=9.0), criteria=NEAR)


@fault(kind="overflow", stage="forward", module="block.0", op=("linear", "addmm"), case="large", step=1)
def overflow_that_a_tanh_takes_in() -> Project:
    stack = nn.Sequential(nn.Linear(8, 8), Block(lambda h: torch.tanh(h.float() * 1e-5)))
    with torch.no_grad():
        stack[0].weight.mul_(3e3)
    return evaluated(Net(stack), cases(small=1.0, large=60.0), criteria=NEAR)


@fault(kind="overflow", stage="loss", module="loss", op="sum", step=0, here=True)
def quotient_of_sums_in_the_first_loss() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        p = torch.sigmoid(model(batch["x"])).repeat_interleave(20000, 0)
        return 2 * (p * p).float().sum() / p.sum()  # here

    return trained(Net(lambda h: h), batches(), loss=loss)


@fault(kind="overflow", stage="forward", module="block", op="mul", step=2, here=True)
def norm_by_hand_in_a_later_iteration() -> Project:
    def norm(h: Tensor) -> Tensor:
        square = h * h  # here
        return h * torch.rsqrt(square.mean(-1, keepdim=True) + 1e-5)

    return trained(Net(norm), batches(b2=600.0))


# Digits


class Positions(nn.Module):
    """Angles of positions as a product that autocast takes over."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", 1.0 / 50.0 ** (torch.arange(0, 8, 2) / 8))

    def forward(self, position: Tensor) -> Tensor:
        angle = position.float()[:, None] @ self.frequencies[None]  # here
        return torch.cat([angle.float().sin(), angle.float().cos()], -1)


class Timed(nn.Module):
    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding, self.head = embedding, nn.Linear(8, 3)

    def forward(self, t: Tensor) -> Tensor:
        return self.head(self.embedding(t))


def times() -> dict[str, Tensor]:
    return {"early": torch.arange(4), "late": torch.arange(901, 907)}


@fault(kind="rounding", stage="output", module="embedding", op=("matmul", "mm"), case="late", step=1, here=True)
def positions_beyond_the_digits_of_bfloat16() -> Project:
    return evaluated(Timed(Positions()), times(), dtype="bfloat16", criteria=Criteria(atol=0.1, rtol=0.0))


@fault(kind="rounding", stage="output", module="embedding", case="late", step=1)
def time_steps_cast_to_the_dtype_of_the_weights() -> Project:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Linear(1, 4, bias=False)
            with torch.no_grad():
                self.scale.weight.copy_(torch.tensor([[1.0], [0.3], [0.1], [0.03]]))

        def forward(self, t: Tensor) -> Tensor:
            angle = self.scale(t.float()[:, None])
            return torch.cat([angle.float().sin(), angle.float().cos()], -1)

    return evaluated(Timed(Steps()), times(), dtype="bfloat16", criteria=Criteria(atol=0.1, rtol=0.0))


@fault(kind="rounding", stage="output", module="block", case="large", step=1)
def running_sum_in_half() -> Project:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(8, 8, bias=False)
            with torch.no_grad():
                self.gate.weight.copy_(torch.eye(8))

        def forward(self, h: Tensor) -> Tensor:
            steps = self.gate(h)
            total = steps.new_zeros(steps.shape)
            for _ in range(400):
                total = total + 0.01 * steps
            return total / 4

    model = Net(Sum())
    return evaluated(model, cases(small=0.01, large=3.0), dtype="bfloat16", criteria=Criteria(atol=0.08, rtol=0.0))


# Choices


class Routed(nn.Module):
    """Experts by the best score; two scores differ by less than half can tell."""

    def __init__(self, choose: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.router = nn.Linear(8, 3, bias=False)
        self.experts = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.choose = choose
        with torch.no_grad():
            self.router.weight[1] = self.router.weight[0] * 1.0005
            self.router.weight[2] = -self.router.weight[0]

    def forward(self, h: Tensor) -> Tensor:
        picks = self.choose(self.router(h))
        return torch.stack([self.experts[int(e)](row) for e, row in zip(picks, h, strict=True)])


def routed(choose: Callable[[Tensor], Tensor]) -> Project:
    return evaluated(Net(Routed(choose)), cases(a=1.0, b=1.0), dtype="bfloat16", criteria=Criteria(atol=0.1, rtol=0.0))


@fault(kind="decision", stage="output", module="block.router", op=("linear", "mm", "addmm"), step=0, case="a")
def router_by_argmax() -> Project:
    return routed(lambda scores: torch.softmax(scores, -1).argmax(-1))


@fault(kind="decision", stage="output", module="block.router", op=("linear", "mm", "addmm"), step=0, case="a")
def router_by_topk() -> Project:
    return routed(lambda scores: scores.topk(1, -1).indices[:, 0])


@fault(kind="decision", stage="output", module="block.router", op=("linear", "mm", "addmm"), step=0, case="a")
def router_by_sorting() -> Project:
    return routed(lambda scores: scores.sort(-1, descending=True).indices[:, 0])


@fault(kind=("decision", "rounding"), stage="output", module="block.fc", case="b", step=1)
def threshold_inside_of_the_model() -> Project:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8, bias=False)
            with torch.no_grad():
                self.fc.weight.copy_(torch.eye(8))

        def forward(self, h: Tensor) -> Tensor:
            return h + 3.0 * (self.fc(h) > 0.5).float()

    x = torch.full((2, 4), 0.2)
    return evaluated(Net(Gate()), {"a": x, "b": x + 0.3003}, dtype="bfloat16", criteria=Criteria(atol=0.1, rtol=0.0))


@fault(kind=("decision", "rounding"), stage="output", module="block.codes", case="b", step=1)
def nearest_code_of_two() -> Project:
    class Codebook(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = nn.Linear(8, 5, bias=False)
            with torch.no_grad():
                self.codes.weight[1] = self.codes.weight[0] * 1.001
            self.register_buffer("values", torch.randn(5, 8, generator=torch.Generator().manual_seed(1)))

        def forward(self, h: Tensor) -> Tensor:
            return self.values[self.codes(h).argmax(-1)]

    torch.manual_seed(2)
    block = Codebook()
    model = Net(block)
    with torch.no_grad():
        h = model.enter(rows(1, seed=9))
        block.codes.weight[2:] = -h
        block.codes.weight[0], block.codes.weight[1] = h[0], h[0] * 1.0004
    return evaluated(
        model, {"a": -rows(1, seed=9), "b": rows(1, seed=9)}, dtype="bfloat16", criteria=Criteria(atol=0.1, rtol=0.0)
    )


# Decisions


class Score(nn.Module):
    def forward(self, q: Tensor, d: Tensor) -> Tensor:
        return torch.einsum("qh,dh->qd", q, d)  # here


class Retriever(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = Score()

    def forward(self, q: Tensor, d: Tensor) -> Tensor:
        return self.score(q, d)


@fault(kind="decision", stage="decision", module="score", op=("einsum", "bmm", "mm"), case="near", step=1, here=True)
def best_document_of_two() -> Project:
    def pair(gap: float) -> dict[str, Tensor]:
        d = torch.zeros(5, 4)
        d[:, 0] = torch.tensor([0.1, 0.7, 0.2, 0.7 + gap, 0.3])
        return {"q": torch.eye(1, 4), "d": d}

    return evaluated(Retriever(), {"clear": pair(0.1), "near": pair(1e-3)}, dtype="bfloat16", decide=argmax)


@fault(kind="decision", stage="decision", module="decide", case="a", step=0)
def rule_that_asks_for_the_dtype() -> Project:
    def decide(out: Tensor) -> list[int]:
        return ((out > 0.5) if out.dtype.itemsize == 4 else (out > 50)).long().tolist()  # type: ignore[no-any-return]

    return evaluated(Net(lambda h: h), {"a": rows() * 5}, decide=decide, criteria=Criteria(atol=0.1, rtol=0.0))


@fault(kind="decision", stage="decision", module="decide", case="a", step=0)
def rule_for_integers_and_float_tensors() -> Project:
    def decide(out: Tensor) -> list[int]:
        labels = (out > 0).long() if isinstance(out, torch.FloatTensor) else out.long().clamp(0, 1)
        return labels.tolist()  # type: ignore[no-any-return]

    return evaluated(
        Net(lambda h: h), {"a": rows() * 0.5}, dtype="bfloat16", decide=decide, criteria=Criteria(atol=0.1, rtol=0.0)
    )


@fault(kind="decision", stage="decision", case="edge", step=1, module="head")
def threshold_at_the_edge() -> Project:
    model = Net(lambda h: h)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
        model.head.weight[0, 0] = 1.0

    def decide(out: Tensor) -> list[bool]:
        return (out[:, 0].float() > 0.5).tolist()  # type: ignore[no-any-return]

    return evaluated(
        model, {"clear": torch.ones(1, 4), "edge": torch.full((1, 4), 0.5003)}, dtype="bfloat16", decide=decide
    )


# Casts that are not made anew


@fault(kind="autocast_state", stage="loss", module="loss", step=0)
def teacher_swapped_into_the_same_module() -> Project:
    model = Net(lambda h: h)
    teacher = [p.detach() + 0.5 for p in model.parameters()]

    def loss(net: nn.Module, batch: Batch) -> Tensor:
        student = net(batch["x"])
        own = [p.detach().clone() for p in net.parameters()]
        with torch.no_grad():
            for p, t in zip(net.parameters(), teacher, strict=True):
                p.data.copy_(t)
            wanted = net(batch["x"])
            for p, o in zip(net.parameters(), own, strict=True):
                p.data.copy_(o)
        return F.mse_loss(student.float(), wanted.float()) + 1.0

    return trained(model, batches(), loss=loss)


# Randomness


@fault(
    kind="randomness",
    stage="output",
    module="block",
    op="dropout",
    case="a",
    step=0,
    fp32_ok=False,
    verdict="inconclusive",
)
def dropout_that_ignores_eval() -> Project:
    return evaluated(Net(lambda h: F.dropout(h, 0.5)), cases(a=1.0, b=1.0))


@fault(kind="randomness", stage="decision", module="decide", op="multinomial", step=0, case="a", fp32_ok=False,
       verdict="inconclusive", here=True)  # fmt: skip
def decision_that_is_drawn() -> Project:
    def decide(out: Tensor) -> list[int]:
        drawn: list[int] = torch.multinomial(out.float().softmax(-1), 1)[:, 0].tolist()  # here
        return drawn

    return evaluated(Net(lambda h: h), cases(a=1.0), decide=decide)


@fault(kind="randomness", stage="output", module="block", case="a", step=0, fp32_ok=False, verdict="inconclusive")
def latent_that_is_sampled_in_eval() -> Project:
    return evaluated(Net(lambda h: h + 0.3 * torch.randn_like(h)), cases(a=1.0))


@fault(kind="randomness", stage="output", module="block", case="a", step=0, fp32_ok=False, verdict="inconclusive")
def choice_by_a_draw() -> Project:
    def draw(h: Tensor) -> Tensor:
        return h * torch.bernoulli(torch.sigmoid(h))

    return evaluated(Net(draw), cases(a=1.0), dtype="bfloat16", decide=argmax)


@pytest.mark.parametrize("name", list(TABLE))
def test_the_leading_finding(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, says = TABLE[name]
    ask(make(), tmp_path, monkeypatch).check(says)
