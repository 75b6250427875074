"""An exported case: a folder whose script shows the failure with torch and the project alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from amptui import Policy, Scaler
from amptui.engine import rng
from amptui.protocol.commands import OpenProject
from amptui.protocol.events import CaseRetained
from amptui.session.errors import SessionError
from amptui.session.exporting import DATA, SCRIPT, export_case
from amptui.session.folder import SessionFolder

PROJECT = """
import numpy as np
import torch
from torch import nn

import amptui
from amptui import Policy


def loss(model, batch):
    x = torch.as_tensor(batch["x"])
    return {"loss": model["net"](x).float().square().mean(), "shown": 1.0}


def project(gain):
    model = {"net": nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Linear(2, 1))}
    update = amptui.Update(
        optimizer=torch.optim.SGD(model["net"].parameters(), lr=gain), loss=loss, accumulate=2, name="net"
    )
    return amptui.Project(model=model, updates=update, batches=[], policy=Policy())
"""


def kept(folder: Path, policy: Policy) -> tuple[SessionFolder, CaseRetained, OpenProject]:
    """A case of a mapping of models, two micro-batches (the second too large for float16) of NumPy arrays."""
    (folder / "train.py").write_text(PROJECT)
    session = SessionFolder.create(folder / "session")
    session.retained.mkdir(parents=True, exist_ok=True)

    def batch(value: float) -> dict[str, Any]:
        array = torch.full((3, 2), value)
        return {"x": {"__amptui_numpy_dtype__": "float32", "array": array, "shape": (3, 2)}}

    state = rng.capture().as_plain()
    content = {
        "step": 4,
        "update": "net",
        "outcome": "bad_loss",
        "scale": 8.0,
        "policy": json.dumps(asdict(policy)),
        "parameters": {f"net.{i}.weight": torch.full(s, 50.0) for i, s in ((0, (2, 2)), (2, (1, 2)))},
        "buffers": {},
        "batches": [batch(1e-3), batch(1e4)],
        "rng": {"0": state, "1": state},
    }
    path = session.retained / "one.pt"
    torch.save(content, path)
    event = CaseRetained(
        id="one", step=4, update="net", case=None, outcome="bad_loss", path=str(path), bytes=path.stat().st_size
    )
    opened = OpenProject(spec=f"{folder / 'train.py'}:project", folder=str(folder), arguments={"gain": 0.1})
    return session, event, opened


def shown(script: Path) -> list[str]:
    """What it prints where amptui cannot be imported."""
    code = f"import sys, runpy; sys.modules['amptui'] = None; runpy.run_path({str(script)!r}, run_name='__main__')"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_models_accumulation_arrays_and_arguments_are_as_they_were(tmp_path: Path) -> None:
    session, event, opened = kept(tmp_path, Policy(scaler=Scaler(init_scale=8.0)))
    script = export_case(session, event, opened, tmp_path / "out")
    assert (script.name, (tmp_path / "out" / DATA).exists()) == (SCRIPT, True)
    assert script.parent.stat().st_mode & 0o077 == 0
    first, second, *gradients = shown(script)
    assert "inf" not in first
    assert "nan" not in first
    assert second.startswith("loss of micro-batch 1: ")
    assert second.split()[-1] in ("inf", "nan")
    assert "gradient of net.0.weight is not finite at loss scale 8" in gradients


def test_regions_of_the_policy_are_in_force(tmp_path: Path) -> None:
    session, event, opened = kept(tmp_path, Policy(scaler=Scaler(init_scale=8.0), fp32_regions=("net.0", "net.2")))
    assert not any(
        "inf" in line or "not finite" in line for line in shown(export_case(session, event, opened, tmp_path / "out"))
    )


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    session, event, opened = kept(tmp_path, Policy())
    (tmp_path / "out").mkdir()
    with pytest.raises(SessionError, match="cannot be written"):
        export_case(session, event, opened, tmp_path / "out")
