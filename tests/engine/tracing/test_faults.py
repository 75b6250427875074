"""Twelve settings of a small transformer under FP16 autocast: eleven faults by place, line and class; one is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from amptui.engine.scale_probe import fit_scale
from amptui.engine.tracing import Trace, trace

WIDTH, TOKENS, CLASSES = 16, 5, 7


class CustomRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.clamp(min=0) / x.clamp(min=0)  # <- custom


class Attention(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.qkv, self.out, self.fault = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), fault

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        gain = 500.0 if self.fault == "overflow" else 1.0
        scores = (q * gain) @ (k * gain).transpose(1, 2)  # <- overflow
        if self.fault == "mask":
            future = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        return self.out(torch.softmax(scores / WIDTH**0.5, -1) @ v)


class Mlp(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.up, self.down, self.fault = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH), fault

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x)
        if self.fault == "in place":
            h = h.clone()
            h.div_((h - h).abs())  # <- in_place
        if self.fault == "recomputed":
            h = torch.exp(h * 1e4)  # <- recomputed
        h = CustomRelu.apply(h) if self.fault == "custom" else torch.relu(h)
        return self.down(h)


class Block(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(WIDTH), Attention(fault)
        self.norm2, self.mlp, self.fault = nn.LayerNorm(WIDTH), Mlp(fault), fault

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        if self.fault == "recomputed":
            return x + checkpoint(self.mlp, self.norm2(x), use_reentrant=False)
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList([Block(fault if i == 1 else "") for i in range(3)])
        self.head, self.fault = nn.Linear(WIDTH, CLASSES), fault

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        logits = self.head(h.mean(1))
        spread = logits.float() - logits.float().mean()
        if self.fault == "dict":
            spread = spread / (spread - spread).sum()  # <- dict
        return {"logits": logits, "spread": spread}


def loss_of(model: Transformer, batch: dict[str, Tensor]) -> Tensor:
    fault = model.fault
    out = model(batch["x"])
    logits = out["logits"]
    loss = F.cross_entropy(logits, batch["y"])
    if fault == "log":
        sure = torch.softmax(logits.half() * 4e3, -1)  # <- log_root
        loss = loss - 1e-3 * torch.log(sure).mean()  # <- log
    if fault == "sqrt":
        same = logits - logits.detach()
        loss = loss + same.square().sum(-1).sqrt().mean()  # <- sqrt
    if fault == "where":
        kept = torch.where(logits > 1e3, torch.log(logits - logits), torch.zeros_like(logits))  # <- where
        loss = loss + kept.mean()
    if fault == "dict":
        loss = loss + out["spread"].mean()
    if fault == "scale":
        loss = loss * 1.0 + (logits.float() * 50).square().sum()  # <- scale
    return loss


@dataclass
class Want:
    phase: str
    op: str
    module: str
    at: str | None
    cause: str
    tensor: str | None = None


FAULTS = {
    "overflow": Want("forward", "bmm", "blocks.1.attn", "overflow", "overflow"),
    "log": Want("loss", "log", "loss", "log", "pole"),
    "input": Want("input", "", "", None, "source", "input x"),
    "sqrt": Want("backward", "sqrt", "loss", "sqrt", "pole"),
    "where": Want("backward", "log", "loss", "where", "pole"),
    "parameter": Want("weights", "", "blocks.1.mlp.up", None, "source", "weights blocks.1.mlp.up.weight"),
    "scale": Want("backward", "to", "loss", "scale", "overflow"),
    "custom": Want("backward", "div", "blocks.1.mlp", "custom", "pole"),
    "in place": Want("forward", "div_", "blocks.1.mlp", "in_place", "pole"),
    "dict": Want("forward", "div", "", "dict", "pole"),
    "recomputed": Want("forward", "exp", "blocks.1.mlp", "recomputed", "overflow"),
}


def faulty(fault: str) -> tuple[Transformer, dict[str, Tensor]]:
    model = Transformer(fault)
    batch = {"x": torch.randn(3, TOKENS, WIDTH), "y": torch.tensor([0, 1, 2])}
    if fault == "input":
        batch["x"][1, 2, 3] = math.nan
    if fault == "parameter":
        with torch.no_grad():
            model.blocks[1].mlp.up.weight[0, 0] = math.nan
    return model, batch


def backward_at(model: Transformer, batch: dict[str, Tensor], scale: float) -> Tensor:
    model.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = loss_of(model, batch)
    (loss * scale).backward()
    return loss


def traced(fault: str) -> tuple[Trace, Transformer]:
    model, batch = faulty(fault)
    found = trace(lambda: backward_at(model, batch, 1024.0), modules=model, inputs=batch)
    assert found.error is None
    return found, model


@pytest.mark.parametrize("fault", FAULTS)
def test_place_line_and_class(fault: str, line_at: Callable[[str], str]) -> None:
    want = FAULTS[fault]
    found, model = traced(fault)
    first = found.blame(loss=found.value, gradients={n: p.grad for n, p in model.named_parameters()})[0]
    assert (first.phase, first.op, first.module) == (want.phase, want.op, want.module)
    assert first.line == (line_at(want.at) if want.at else None)
    assert (first.cause, first.tensor) == (want.cause, want.tensor)


def test_the_mask_is_silent() -> None:
    found, model = traced("mask")
    gradients = {n: p.grad for n, p in model.named_parameters()}
    assert found.blame(loss=found.value, gradients=gradients) == ()
    assert found.healed(loss=found.value, gradients=gradients) == ()


def test_log_of_an_underflow_names_the_underflow(line_at: Callable[[str], str]) -> None:
    found, _ = traced("log")
    [first] = found.blame(loss=found.value)
    assert first.root is not None
    assert (first.root.op, first.root.line, first.root.how) == ("softmax", line_at("log_root"), "some")


def test_only_the_scale_is_at_fault_where_a_lower_one_fits() -> None:
    model, batch = faulty("scale")
    fit = fit_scale(lambda scale: backward_at(model, batch, scale), model)
    assert fit.scale is not None
    assert fit.scale < 1024
    model, batch = faulty("sqrt")
    assert fit_scale(lambda scale: backward_at(model, batch, scale), model).scale is None
