"""What the replay that names an origin costs: traced forward and backward over plain ones. Budget: 3.

A small transformer in FP32 is the honest proxy for fast hardware: the tracer's work without the slow half-precision
kernels of a CPU, which would flatter it. Variants alternate in one process; each ratio is of one pair.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui.engine.tracing import trace

BUDGET = 3.0
WIDTH, LAYERS, TOKENS, BATCH, CLASSES = 192, 4, 64, 8, 16


class Transformer(nn.Module):
    """Encoder layers with a mask and a classifier; `poison` makes one activation overflow."""

    def __init__(self, poison: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, WIDTH)
        layers = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True) for _ in range(LAYERS)]
        self.layers, self.head = nn.ModuleList(layers), nn.Linear(WIDTH, CLASSES)
        if poison:
            with torch.no_grad():
                layers[LAYERS // 2].linear1.weight.fill_(1e38)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return self.head(x.mean(1))


def iteration(model: nn.Module, dtype: torch.dtype | None, batch: int) -> Callable[[], Tensor]:
    ids = torch.randint(0, 100, (batch, TOKENS))
    target = torch.randint(0, CLASSES, (batch,))

    def run() -> Tensor:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            loss = F.cross_entropy(model(ids), target)
        loss.backward()
        return loss

    return run


def ratio(model: nn.Module, run: Callable[[], Tensor], rounds: int) -> tuple[float, int]:
    """Median over rounds of traced (with the reading of the tape) over plain, in CPU time of this thread."""
    found, ops = [], 0
    for _ in range(rounds):
        start = time.thread_time()
        run()
        plain = time.thread_time() - start
        start = time.thread_time()
        traced = trace(run, modules=model)
        traced.blame(loss=traced.value, gradients={n: p.grad for n, p in model.named_parameters()})  # type: ignore[arg-type]
        found.append((time.thread_time() - start) / plain)
        ops = traced.ops
    return statistics.median(found), ops


def main() -> None:
    torch.set_num_threads(1)
    worst = 0.0
    for name, dtype, poison, batch, rounds in (
        ("fp32, healthy", None, False, BATCH, 7),
        ("fp32, overflow in the middle", None, True, BATCH, 7),
        ("fp16, overflow in the middle", torch.float16, True, 1, 2),
    ):
        torch.manual_seed(0)
        model = Transformer(poison)
        run = iteration(model, dtype, batch)
        run()
        times, ops = ratio(model, run, rounds)
        worst = max(worst, times)
        print(f"origin replay, {name}: {times:.2f} × forward and backward ({ops} ops)")
    verdict = "within" if worst <= BUDGET else "OVER"
    print(f"worst {worst:.2f}, {verdict} the budget of {BUDGET:.0f}")


if __name__ == "__main__":
    main()
