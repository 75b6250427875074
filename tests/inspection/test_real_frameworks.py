"""Checkpoints that the installed frameworks write themselves are recognised; each test needs its framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amptui.inspection.process import inspect_in_child
from amptui.inspection.result import Inspection

pytestmark = pytest.mark.frameworks

SCALER = {"scale": 4096.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 9}


def inspect(path: Path) -> Inspection:
    found = inspect_in_child(str(path))
    assert found.readable, found.findings
    assert found.complete, found.findings
    assert not found.has_fault, found.findings
    assert found.nonfinite == ()
    return found


def test_lightning(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning.pytorch")

    class Lit(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"width": 4})
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]

    plugin = lightning.plugins.MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=4096.0))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=4)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[plugin],
        default_root_dir=tmp_path,
    )
    trainer.fit(Lit(), data)
    trainer.save_checkpoint(tmp_path / "real.ckpt")
    found = inspect(tmp_path / "real.ckpt")
    assert found.format == "lightning"
    assert lightning.__version__ in found.title
    assert found.scalers[0].path == "MixedPrecision"
    assert found.scalers[0].growth_tracker == found.steps.optimizer
    assert found.steps.loop == 8
    assert {"model", "optimizer", "scheduler", "scaler", "data"} <= set(found.present)
    assert "rng" in found.missing


def test_accelerate(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4)), batch_size=4, shuffle=True)
    net, optimizer, data, scheduler = accelerator.prepare(net, optimizer, data, scheduler)
    for (batch,) in data:
        accelerator.backward(net(batch).square().mean())
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    accelerator.scaler = torch.amp.GradScaler("cpu")  # Accelerate has none on the CPU, but saves what is there
    accelerator.scaler.load_state_dict(SCALER)
    accelerator.save_state(str(tmp_path / "state"))
    found = inspect(tmp_path / "state")
    assert found.format == "accelerate"
    assert found.steps.optimizer == 2
    assert [state.growth_tracker for state in found.scalers] == [9]
    assert {"model", "optimizer", "scheduler", "rng.cpu", "rng.python", "rng.numpy"} <= set(found.present)


def test_transformers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=2
    )
    model = transformers.BertForSequenceClassification(config)
    rows = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(1)} for _ in range(8)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=3, save_steps=3, per_device_train_batch_size=2, use_cpu=True, report_to=[]
    )
    transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()
    base = tmp_path / "checkpoint-3"
    torch.save(SCALER, base / "scaler.pt")  # as `_save_scaler` does on a GPU
    found = inspect(tmp_path)
    assert found.format == "hf_trainer"
    assert (found.steps.loop, found.steps.optimizer, found.steps.skipped) == (3, 3, 0)
    assert found.scalers[0].scale == 4096.0
    assert {"model", "optimizer", "scheduler", "scaler", "rng.cpu", "rng.numpy", "rng.python"} <= set(found.present)
    assert any(name.endswith("TrainingArguments") for name in found.needs_code)
    assert found.dangerous == ()


def test_timm(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    timm_utils = pytest.importorskip("timm.utils")
    import argparse

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.randn(8, 4)).sum().backward()
    optimizer.step()

    class Scaler:
        state_dict_key = "amp_scaler"

        def state_dict(self) -> dict[str, object]:
            return SCALER

    saver = timm_utils.CheckpointSaver(
        net,
        optimizer,
        args=argparse.Namespace(model="tiny", amp=True),
        model_ema=timm_utils.ModelEmaV2(net),
        amp_scaler=Scaler(),
        checkpoint_dir=str(tmp_path),
        recovery_dir=str(tmp_path),
    )
    saver.save_checkpoint(3, metric=1.0)
    found = inspect(tmp_path / "last.pth.tar")
    assert found.format == "timm"
    assert found.scalers[0].path == "amp_scaler"
    assert found.dtypes["ema"] == {"float32": 6, "int64": 1}
    assert found.needs_code == ("argparse.Namespace",)
    assert {"scheduler", "rng"} <= set(found.missing)


def test_torch_distributed_checkpoint(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    model, state = pytest.importorskip("torch.distributed.checkpoint.state_dict").get_state_dict(net, optimizer)
    dcp.save(
        {"model": model, "optimizer": state, "scaler": SCALER, "step": 1, "rng": torch.get_rng_state()},
        checkpoint_id=str(tmp_path / "step-1"),
    )
    found = inspect(tmp_path)
    assert found.format == "dcp"
    assert found.scalers[0].path == "scaler"
    assert found.scalers[0].growth_tracker == 9
    assert (found.steps.loop, found.steps.optimizer) == (1, 1)
    assert found.dtypes == {"parameters": {"float32": 2}, "optimizer_state": {"float32": 4}}
    assert "rng.cpu" in found.present
