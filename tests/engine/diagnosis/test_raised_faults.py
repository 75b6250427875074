"""Code that raises under the policy and not in FP32: op, module, line, and a region that helps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Project
from tests.engine.diagnosis.told import Batch, Net, Says, ask, batches, evaluated, rows, trained

Made = tuple[Callable[[], Project], Says]
TABLE: dict[str, Made] = {}


def fault(**says: object) -> Callable[[Callable[[], Project]], Callable[[], Project]]:
    def note(make: Callable[[], Project]) -> Callable[[], Project]:
        TABLE[make.__name__] = make, Says(**{"kind": "dtype", "stage": "error", **says})  # type: ignore[arg-type]
        return make

    return note


# Constants that do not fit


@fault(module="block", op="masked_fill", step=0, here=True)
def mask_value_beyond_half() -> Project:
    return trained(Net(lambda h: torch.softmax(h.masked_fill(h > 9, -1e9), -1)), batches())  # here


@fault(module="block", op="masked_fill", step=0, here=True)
def least_value_of_float32_in_half() -> Project:
    def mask(h: Tensor) -> Tensor:
        return torch.softmax(h.masked_fill(h > 9, torch.finfo(torch.float32).min), -1)  # here

    return trained(Net(mask), batches())


@fault(module="block", op=("fill", "fill_", "masked_fill", "masked_fill_", "full"), step=0, here=True)
def table_filled_with_a_constant_beyond_half() -> Project:
    def fill(h: Tensor) -> Tensor:
        table = torch.zeros_like(h)
        table.masked_fill_(h > 9, 1e6)  # here
        return h + table

    return trained(Net(fill), batches())


# Two dtypes in one op


@fault(module="block", op="index_add_", step=0, here=True)
def messages_summed_into_a_float32_table() -> Project:
    def gather(h: Tensor) -> Tensor:
        table = torch.zeros(h.shape[0], 8)
        return table.index_add_(0, torch.arange(h.shape[0]), h)  # here

    return trained(Net(gather), batches(), dtype="bfloat16")


@fault(module="block", op=("scatter_add_", "scatter_add", "scatter"), step=0, here=True)
def scatter_add_of_half_into_float32() -> Project:
    def gather(h: Tensor) -> Tensor:
        table = torch.zeros(3, 8)
        return table.scatter_add_(0, (torch.arange(h.shape[0]) % 3)[:, None].expand(-1, 8), h)[  # here
            torch.arange(h.shape[0]) % 3
        ]

    return trained(Net(gather), batches())


@fault(module="block", op=("index_put_", "_index_put_impl_", "index_put"), step=0, here=True)
def rows_written_into_a_float32_buffer() -> Project:
    def write(h: Tensor) -> Tensor:
        table = torch.zeros(h.shape[0], 8)
        table[torch.arange(h.shape[0])] = h  # here
        return table

    return trained(Net(write), batches())


@fault(module="block", op=("lerp", "lerp_"), step=0, here=True)
def average_by_lerp_of_two_dtypes() -> Project:
    def average(h: Tensor) -> Tensor:
        return torch.lerp(torch.zeros(h.shape), h, 0.5)  # here

    return trained(Net(average), batches())


@fault(module="block", op=("mm", "addmm", "linear"), kind=("dtype", "autocast_state"), step=0, here=True)
def region_without_autocast_and_without_a_cast() -> Project:
    class Precise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(8))

        def forward(self, h: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                return h @ self.weight  # here

    return trained(Net(Precise()), batches())


@fault(module="loss", op=("mse_loss", "mm", "addmm", "linalg_solve", "dot"), kind="dtype", step=0, here=True)
def product_of_two_dtypes_in_the_loss() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        z = model(batch["x"])
        return torch.dot(z[:, 0], batch["x"][:, 0]).abs() + 1.0  # here

    return trained(Net(lambda h: h), batches(), loss=loss)


# What knows no bfloat16


@fault(module="outputs", case="a", step=0, here=True, kind="dtype")
def bfloat16_to_numpy() -> Project:
    def outputs(model: nn.Module, x: Tensor) -> Any:
        return torch.from_numpy(model(x).numpy())  # here

    return evaluated(Net(lambda h: h), {"a": rows()}, dtype="bfloat16", outputs=outputs)


# Threads, recomputation, custom functions


@fault(kind="autocast_state", module="block.branches.0", step=0)
def branches_in_a_thread_pool() -> Project:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branches = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

        def forward(self, h: Tensor) -> Tensor:
            with ThreadPoolExecutor(1) as pool:
                return sum(pool.map(lambda branch: branch(h), self.branches))  # type: ignore[return-value]

    return trained(Net(Parallel()), batches())


@fault(kind=("autocast_state", "dtype"), module="block.inner", step=0)
def block_in_a_plain_thread() -> Project:
    class Threaded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, h: Tensor) -> Tensor:
            found: list[Any] = []

            def work() -> None:
                try:
                    found.append(self.inner(h))
                except RuntimeError as error:
                    found.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            if isinstance(found[0], Exception):
                raise found[0]
            return found[0]

    return trained(Net(Threaded()), batches())


class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad  # here


@fault(module="block", op="mm", step=0, here=True, kind=("dtype", "autocast_state"))
def custom_function_without_the_decorators() -> Project:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.eye(8))

        def forward(self, h: Tensor) -> Tensor:
            return Outer.apply(h, self.w)  # type: ignore[no-any-return]

    return trained(Net(Custom()), batches())


class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inner: nn.Module, x: Tensor) -> Tensor:
        ctx.inner, ctx.x = inner, x.detach()
        with torch.no_grad():
            return inner(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        with torch.enable_grad():
            x = ctx.x.requires_grad_()
            y = ctx.inner(x)
        torch.autograd.backward(y, grad)
        return None, x.grad


@fault(kind=("autocast_state", "dtype"), module="block.inner", step=0)
def recomputation_without_autocast() -> Project:
    class Saved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, h: Tensor) -> Tensor:
            return Recompute.apply(self.inner, h)  # type: ignore[no-any-return]

    return trained(Net(Saved()), batches())


# In a case, and in the rule


@fault(module="block", op="masked_fill", case="long", step=1, here=True)
def error_in_one_case_alone() -> Project:
    def mask(h: Tensor) -> Tensor:
        return torch.softmax(h.masked_fill(h > 9, -1e9) if h.shape[0] > 6 else h, -1)  # here

    return evaluated(Net(mask), {"short": rows(), "long": rows(8)})


@fault(module="decide", case="a", step=0)
def rule_that_half_cannot_be_asked() -> Project:
    def decide(out: Tensor) -> int:
        return int(torch.bincount(torch.arange(3), weights=out[0])[0] > out.numpy().sum())

    return evaluated(Net(lambda h: h), {"a": rows(1)}, dtype="bfloat16", decide=decide)


@pytest.mark.parametrize("name", list(TABLE))
def test_the_leading_finding(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, says = TABLE[name]
    ask(make(), tmp_path, monkeypatch).check(says)
