"""Code that fails under the policy: module, op, line, and the one-line mend."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from amptui.engine.tracing import ErrorPlace, locate_error, trace
from amptui.engine.tracing.messages import classify

HALF = torch.float16


def error_of(
    model: nn.Module, loss: Callable[[nn.Module], Tensor] | None = None, *, dtype: torch.dtype = HALF
) -> ErrorPlace:
    def run() -> None:
        with torch.autocast("cpu", dtype):
            value = (loss or (lambda m: m(torch.randn(3, 4)).float().mean()))(model)
        value.backward()

    found = trace(run, modules=model)
    assert found.level == "op"
    assert found.error_place is not None
    return found.error_place


class Net(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.stem, self.inner = nn.Linear(4, 4), inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.stem(x))


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)


class Constant(Inner):
    def forward(self, h: Tensor) -> Tensor:
        return self.fc(h).masked_fill(torch.ones(4, dtype=torch.bool), -1e9)  # <- constant


class Scatter(Inner):
    def forward(self, h: Tensor) -> Tensor:
        total = torch.zeros(2, 4)
        return total.index_add_(0, torch.tensor([0, 1, 1]), self.fc(h))  # <- scatter


class Assign(Inner):
    def forward(self, h: Tensor) -> Tensor:
        out = torch.zeros(3, 4)
        out[torch.tensor([0, 1, 2])] = self.fc(h)  # <- assign
        return out


class Region(Inner):
    def forward(self, h: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return self.fc(h)  # <- region


class Threads(Inner):
    def forward(self, h: Tensor) -> Tensor:
        out: list[Tensor] = []
        errors: list[Exception] = []

        def work() -> None:
            try:
                out.append(self.fc(h))  # <- thread
            except Exception as error:
                errors.append(error)

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        if errors:
            raise errors[0]
        return out[0]


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.mm(w)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient.mm(w.t()), x.t().mm(gradient)  # <- custom


class Custom(Inner):
    def forward(self, h: Tensor) -> Tensor:
        return Product.apply(h.float(), self.fc.weight)


class Repeat(torch.autograd.Function):
    """A hand-written checkpoint that forgets the autocast state."""

    @staticmethod
    def forward(ctx, block, x):
        ctx.block = block
        ctx.save_for_backward(x)
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            out = ctx.block(x)
        torch.autograd.backward(out, gradient)
        return None, x.grad


class Block(Inner):
    def forward(self, h: Tensor) -> Tensor:
        return self.fc(h)  # <- repeated


class Recomputed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, h: Tensor) -> Tensor:
        return Repeat.apply(self.block, h)


class OtherContext(Inner):
    """torch's checkpointing, told to repeat the block without autocast: what it saves then has another dtype."""

    def forward(self, h: Tensor) -> Tensor:
        return checkpoint(self.inside, h.float(), use_reentrant=False, context_fn=self.contexts)

    def inside(self, h: Tensor) -> Tensor:
        return self.fc(h).square()  # <- other_context

    def contexts(self):
        return contextlib.nullcontext(), torch.autocast("cpu", enabled=False)


class Checkpointed(Constant):
    def forward(self, h: Tensor) -> Tensor:
        return checkpoint(super().forward, h, use_reentrant=False)


class Unsupported(Inner):
    def forward(self, h: Tensor) -> Tensor:
        return torch.linalg.lu_factor(self.fc(h)[:, :3])[0]  # <- unsupported


CASES: dict[str, tuple[Callable[[], nn.Module], str, str, str | None, str, str]] = {
    "constant": (Constant, "forward", "inner", "masked_fill", "constant", "constant_out_of_range"),
    "scatter": (Scatter, "forward", "inner", "index_add_", "scatter", "in_place"),
    "assign": (Assign, "forward", "inner", "index_put_", "assign", "in_place"),
    "region": (Region, "forward", "inner.fc", "addmm", "region", "region_without_cast"),
    "thread": (Threads, "forward", "inner.fc", "addmm", "thread", "thread_without_autocast"),
    "custom": (Custom, "backward", "inner", "mm", "custom", "custom_function"),
    "recomputed": (Recomputed, "forward", "inner.block.fc", "addmm", "repeated", "recompute_without_autocast"),
    "unsupported": (Unsupported, "forward", "inner", "linalg_lu_factor_ex", "unsupported", "unsupported_op"),
    "other context": (OtherContext, "forward", "inner.fc", None, "other_context", "recompute_without_autocast"),
    "checkpointed": (Checkpointed, "forward", "inner", "masked_fill", "constant", "constant_out_of_range"),
}


@pytest.mark.parametrize("name", CASES)
def test_place_and_problem(name: str, line_at: Callable[[str], str]) -> None:
    make, phase, module, op, mark, problem = CASES[name]
    place = error_of(Net(make()))
    assert (place.phase, place.module, place.op) == (phase, module, op)
    assert place.line == line_at(mark)
    assert place.problem == problem
    assert place.mend


def test_loss_code_is_named_loss(line_at: Callable[[str], str]) -> None:
    def loss(model: nn.Module) -> Tensor:
        out = model(torch.randn(3, 4))
        return torch.zeros(3, 4).index_add_(0, torch.tensor([0, 1, 2]), out).mean()  # <- loss

    place = error_of(nn.Sequential(nn.Linear(4, 4)), loss)
    assert (place.module, place.phase, place.line) == ("loss", "loss", line_at("loss"))
    assert (place.op, place.problem) == ("index_add_", "in_place")


def test_error_of_plain_python_is_located_by_its_traceback(line_at: Callable[[str], str]) -> None:
    class Picky(Inner):
        def forward(self, h: Tensor) -> Tensor:
            if self.fc(h).dtype != torch.float32:
                raise ValueError("wants float32")  # <- picky
            return h

    place = error_of(Net(Picky()))
    assert (place.module, place.line, place.error_type) == ("inner", line_at("picky"), "ValueError")


@pytest.mark.parametrize("name", ["constant", "scatter", "region", "thread"])
def test_without_a_trace_the_traceback_is_enough(name: str, line_at: Callable[[str], str]) -> None:
    make, _, module, _, mark, problem = CASES[name]
    model = Net(make())
    with pytest.raises(RuntimeError) as caught, torch.autocast("cpu", HALF):
        model(torch.randn(3, 4))
    place = locate_error(caught.value, model)
    assert place.line == line_at(mark)
    assert module == place.module
    assert not place.traced
    if name in ("constant", "thread"):
        assert place.problem == problem


def test_dtypes_of_the_op_are_told() -> None:
    place = error_of(Net(Region()))
    assert {f.dtype for f in place.inputs} == {"float16", "float32"}


def test_errors_that_user_code_catches_are_not_blamed(line_at: Callable[[str], str]) -> None:
    class Tries(Inner):
        def forward(self, h: Tensor) -> Tensor:
            with contextlib.suppress(RuntimeError):
                torch.zeros(2, 4).index_add_(0, torch.tensor([0, 1, 1]), h)
            return self.fc(h).masked_fill(torch.ones(4, dtype=torch.bool), 1e9)  # <- uncaught

    place = error_of(Net(Tries()))
    assert (place.line, place.problem) == (line_at("uncaught"), "constant_out_of_range")


MESSAGES = {
    "mat1 and mat2 must have the same dtype, but got Half and Float": "dtype_mismatch",
    "expected m1 and m2 to have the same dtype, but got: c10::Half != float": "dtype_mismatch",
    "expected scalar type Half but found Float": "dtype_mismatch",
    "Input type (float) and bias type (c10::Half) should be the same": "dtype_mismatch",
    "index_add_(): self (Float) and source (BFloat16) must have the same scalar type": "dtype_mismatch",
    "Index put requires the source and destination dtypes match, got Float for the destination": "dtype_mismatch",
    "scatter(): Expected self.dtype to be equal to src.dtype": "dtype_mismatch",
    "Expected query, key, and value to have the same dtype, but got query.dtype: c10::Half": "dtype_mismatch",
    "result type Float can't be cast to the desired output type Long": "dtype_mismatch",
    "Expected attn_mask dtype to be bool or float or to match query dtype, but got float": "dtype_mismatch",
    "mixed dtype (CPU): expect parameter to have scalar type of Float": "dtype_mismatch",
    "expected dtype float for `end` but got dtype c10::Half": "dtype_mismatch",
    "Function MulBackward0 returned an invalid gradient at index 0 - expected type torch.HalfTensor": "dtype_mismatch",
    "Found dtype Float but expected Half": "dtype_mismatch",
    "value cannot be converted to type c10::Half without overflow": "constant_out_of_range",
    "value cannot be converted to type at::Half without overflow": "constant_out_of_range",
    "\"linalg_matrix_exp_cpu\" not implemented for 'Half'": "unsupported_op",
    "cholesky: Low precision dtypes not supported. Got Half": "unsupported_op",
    "Unsupported dtype Half": "unsupported_op",
    "Got unsupported ScalarType BFloat16": "unsupported_op",
    "could not create a primitive descriptor for the LSTM forward propagation primitive": "unsupported_op",
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.": "unsafe_op",
    "Attempting to unscale FP16 gradients.": "half_parameters",
    "shape '[3, 4]' is invalid for input of size 5": "other",
    "index out of range in self": "other",
    "CUDA out of memory": "other",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_messages(message: str) -> None:
    assert classify(message) == MESSAGES[message]
