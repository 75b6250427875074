"""What only a GPU can show: the same bits as the plain loop, one host transfer per update, TF32, memory, names."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Policy, Project, Scaler, Update
from amptui.engine.environment import environment
from amptui.engine.guard import Guard
from amptui.engine.live import LiveProject
from amptui.engine.opening import open_project
from amptui.engine.precision import PrecisionSettings, true_fp32
from amptui.protocol.commands import FallBack
from amptui.protocol.events import FellBack, Refused, VerdictReached
from tests.engine.conducted import opened_by
from tests.engine.projects import Batch, Net, assert_same_bits, batches, guarded, state_of, weighted_loss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA (or ROCm) device"),
]

OPTIMIZERS = {
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "capturable adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01, device="cuda"), capturable=True),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.05, fused=True),
}


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    before = PrecisionSettings.current()
    yield
    before.restore()
    torch.cuda.set_sync_debug_mode("default")


def on_gpu(project: Project, folder: Path) -> LiveProject:
    return open_project(project, device="cuda", iterations=None, folder=folder, on_progress=lambda *_: None)


def single(optimizer: str, **how: Any) -> tuple[Net, list[Update]]:
    torch.manual_seed(11)
    model = Net().cuda()
    return model, [Update(optimizer=OPTIMIZERS[optimizer](model.parameters()), loss=weighted_loss, **how)]


def plain_loop(model: nn.Module, update: Update, data: list[Batch], dtype: torch.dtype, scaler: Any) -> None:
    for x, y, weight in data:
        update.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=dtype):
            loss = update.loss(model, (x.cuda(), y.cuda(), weight))
        scaler.scale(loss).backward()  # type: ignore[arg-type]
        scaler.unscale_(update.optimizer)
        if update.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), update.clip_norm)
        scaler.step(update.optimizer)
        scaler.update()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("clip", [None, 0.05, 1e9])
def test_the_guard_equals_the_plain_loop_bit_for_bit(optimizer: str, clip: float | None, tmp_path: Path) -> None:
    data = batches(10, bad=(2, 5))
    model, updates = single(optimizer, clip_norm=clip)
    torch.manual_seed(5)
    scaler = torch.amp.GradScaler("cuda", init_scale=4096.0, growth_interval=4)
    plain_loop(model, updates[0], copy.deepcopy(data), torch.float16, scaler)
    twin, twins = single(optimizer, clip_norm=clip)
    live = on_gpu(Project(model=twin, updates=twins, batches=data), tmp_path)
    torch.manual_seed(5)
    left = guarded(live, Policy(scaler=Scaler(init_scale=4096.0, growth_interval=4)))
    assert_same_bits(state_of(twin, twins), state_of(model, updates))
    assert left.run.scaler is not None
    assert left.run.scaler.state_dict() == scaler.state_dict()
    assert left.run.scale == scaler.get_scale()


@pytest.mark.parametrize("optimizer", ["adamw", "capturable adamw"])
def test_one_host_transfer_per_update(optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every phase runs where a synchronisation is an error, except the one that reads what decides."""
    model, updates = single(optimizer, clip_norm=1e9)
    data = [(x, y, 1.0) for x, y, _ in batches(6)]
    live = on_gpu(Project(model=model, updates=updates, batches=data), tmp_path)
    run_phases: list[str] = []

    def on_phase(phase: Any) -> None:
        run_phases.append(phase.name)
        if phase.step < 2:
            return  # state is made and kernels are loaded in the first iterations
        # batches are copied to the device before the forward: those transfers are the data's
        quiet = phase.name in ("forward", "check_loss", "backward", "check_grads", "clip", "step")
        torch.cuda.set_sync_debug_mode("error" if quiet else "default")

    reads, transfer = 0, Guard._transfer

    def counted(self: Guard, values: Any) -> list[float]:
        nonlocal reads
        reads += 1
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("default")
        found = transfer(self, values)
        torch.cuda.set_sync_debug_mode(mode)
        return found

    monkeypatch.setattr(Guard, "_transfer", counted)
    guarded(live, Policy(scaler=None, dtype="bfloat16"), on_phase=on_phase)
    assert reads == 6
    assert run_phases.count("step") == 6


def test_tf32_is_off_in_true_fp32_and_on_again_afterwards() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    a, b = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    exact = (a.double() @ b.double()).float()
    with true_fp32():
        inside = (a @ b - exact).abs().max()
    assert float(inside) < 1e-3
    assert torch.backends.cuda.matmul.allow_tf32 is True


def test_a_whole_session_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, updates = single("fused adamw")
    project = Project(
        model=model, updates=updates, batches=batches(8), cases=[Case(id="a", inputs=torch.randn(3, 6))],
        policy=Policy(scaler=Scaler(init_scale=1024.0)),
    )  # fmt: skip
    done = opened_by(project, tmp_path, monkeypatch, device="cuda").judge().do(FallBack())
    assert not done.all(Refused)
    assert done.one(VerdictReached).verdict == "accept", done.one(VerdictReached).words
    assert done.one(FellBack).proven


def test_edits_in_place_do_not_leak_although_cuda_and_cuda_0_are_unequal(tmp_path: Path) -> None:
    def loss(m: nn.Module, batch: Any) -> Tensor:
        value = m(batch[0]).float().sum()
        batch[0].zero_()
        return value

    model = nn.Linear(4, 1).cuda()
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.0), loss=loss)
    given = torch.ones(2, 4, device="cuda")
    live = on_gpu(Project(model=model, updates=[update], batches=[(given,)]), tmp_path)
    losses = [guarded(live, Policy(dtype="bfloat16")).records[0].updates[0].loss for _ in range(2)]
    assert losses[0] == losses[1]
    assert bool(given.all())


def test_the_state_of_optimizers_is_moved_as_torch_keeps_it(tmp_path: Path) -> None:
    """The step counter of an ordinary Adam stays on the CPU, also where a parameter has no dimensions either."""
    for fused in (False, True):
        model = nn.ParameterDict({"scale": nn.Parameter(torch.ones(()))})
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
        model["scale"].sum().backward()
        optimizer.step()
        update = Update(optimizer=optimizer, loss=lambda m, b: (m["scale"] * b).sum())
        live = on_gpu(Project(model=model, updates=[update], batches=[torch.ones(2)] * 2), tmp_path / str(fused))
        left = guarded(live, Policy(dtype="bfloat16"))
        assert all(record.updates[0].applied for record in left.records)


def test_too_little_memory_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(m: nn.Module, batch: Any) -> Tensor:
        return m(batch[0]).float().sum() + torch.empty(1 << 50, dtype=torch.uint8, device="cuda").sum()

    model = nn.Linear(4, 1)
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    project = Project(model=model, updates=[update], batches=[(torch.ones(2, 4),)])
    refused = opened_by(project, tmp_path, monkeypatch, device="cuda").one(Refused)
    assert refused.code == "fp32-failed"
    assert "OutOfMemoryError" in refused.message
    assert "smaller batches" in refused.hint


def test_the_device_is_called_what_it_is(tmp_path: Path) -> None:
    told = environment(torch.device("cuda", 0), tmp_path)
    assert told.accelerator is not None
    assert told.accelerator.startswith("ROCm " if torch.version.hip else "CUDA ")
    assert told.device_name == torch.cuda.get_device_name(0)
