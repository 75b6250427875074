"""The tests' own writer writes what torch writes, and reads back the same: held against the real torch both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from amptui.inspection.reading import inspect_path
from tests.inspection.writer import T, adam, legacy_bytes, numpy_state, python_state, save, scaler, schedule, weights

torch = pytest.importorskip("torch")


def test_torch_loads_what_the_writer_writes(tmp_path: Path) -> None:
    root = {"model": weights("bfloat16"), "optimizer": adam(7), "scaler": scaler(), "lr": schedule()}
    path = save(tmp_path / "zip.pt", root)
    loaded = torch.load(path, weights_only=True)
    assert loaded["model"]["fc.weight"].dtype == torch.bfloat16
    assert loaded["model"]["fc.weight"].tolist() == [[0.5, -0.25, 0.5], [-0.25, 0.5, -0.25]]
    assert loaded["optimizer"]["state"][0]["step"].item() == 7
    torch.amp.GradScaler("cpu").load_state_dict(loaded["scaler"])
    (tmp_path / "legacy.pt").write_bytes(legacy_bytes(root))
    assert torch.load(tmp_path / "legacy.pt", weights_only=True)["optimizer"]["state"][1]["exp_avg"].tolist() == [
        0.5,
        0.5,
    ]


def test_torch_loads_the_writers_generators(tmp_path: Path) -> None:
    path = save(tmp_path / "rng.pth", {"numpy": numpy_state(), "python": python_state(), "cpu": T(0, (5056,), "uint8")})
    loaded = torch.load(path, weights_only=False)
    assert loaded["numpy"][1].shape == (624,)
    assert len(loaded["python"][1]) == 625


@pytest.mark.parametrize("new_format", [True, False])
def test_what_torch_writes_is_read(new_format: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    net[1].running_var[2] = float("nan")
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    root = {
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedulers": [scheduler.state_dict(), plateau.state_dict()],
        "scaler": torch.amp.GradScaler("cpu").state_dict(),
        "rng": torch.get_rng_state(),
        "tied": [net[0].weight, net[0].weight.t(), net[0].weight[1:, 2]],
    }
    path = tmp_path / "real.pt"
    torch.save(root, path, _use_new_zipfile_serialization=new_format)
    found = inspect_path(str(path))
    assert found.container == ("zip" if new_format else "legacy")
    assert found.complete
    assert found.nonfinite == ("model.1.running_var",)
    assert found.scalers[0].scale == 65536.0
    assert found.steps.optimizer == 1
    assert found.dtypes["optimizer_state"] == {"float32": 8}
    assert {"model", "optimizer", "scheduler", "scaler", "rng.cpu"} <= set(found.present)
    assert found.needs_code == ()
    shapes = {tensor.path: tensor.shape for tensor in found.tensors}
    assert shapes["tied.1"] == (4, 4)
    assert shapes["tied.2"] == (3,)


def test_a_file_written_without_checksums_is_not_damaged(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"model": torch.nn.Linear(2, 2).state_dict()}, tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    found = inspect_path(str(tmp_path / "x.pt"))
    assert found.complete
    assert not found.has_fault


def test_the_safe_list_is_torchs(tmp_path: Path) -> None:
    unpickler = pytest.importorskip("torch._weights_only_unpickler")
    from amptui.inspection.known_globals import grade
    from amptui.inspection.nodes import Global
    from amptui.inspection.pickle_walk import Use

    names = [name.rpartition(".") for name in unpickler._get_allowed_globals()]
    assert len(names) > 100
    unsafe = [".".join((m, n)) for m, _, n in names if grade(Global(m, n), Use(calls=1)) != "safe"]
    assert unsafe == []
