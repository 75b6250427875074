"""`check --policies --measure` and `cases` as commands, with a real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = """
import torch
from torch import nn
from amptui import Case, Criteria, Project, Scaler, Policy, Update

torch.set_num_threads(1)

def loss(model, batch):
    x, y = batch
    return nn.functional.cross_entropy(model(x), y)

def project():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    batches = [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(4)]
    return Project(
        model=model,
        updates=[Update(optimizer=torch.optim.SGD(model.parameters(), lr=1e-3), loss=loss)],
        batches=batches,
        cases=[Case(id=f"c{n}", inputs=torch.randn(1, 6)) for n in range(2)],
        decide=lambda scores: scores.float().argmax(-1).tolist(),
        criteria=Criteria(decision_changes=2),
    )
"""


def amptui(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "AMPTUI_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "amptui", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROJECT)
    return tmp_path


def test_two_policies_are_judged_and_measured_in_one_session(folder: Path) -> None:
    done = amptui(folder, "check", "train.py:project", "--policies", "fp16@256,bf16", "--measure", "--json", "out.json")
    assert done.returncode == 0, done.stdout + done.stderr

    result = json.loads((folder / "out.json").read_text())
    assert [(trial["name"], trial["verdict"]) for trial in result["trials"]] == [
        ("float16@2^8", "accept"),
        ("bfloat16", "accept"),
    ]
    assert [trial["interventions"] for trial in result["trials"]] == [0, 0]
    assert len(result["criteria"]) == 1
    for told in result["measurement"]["trials"]:
        assert 0.0 < told["speedup"]["low"] <= told["speedup"]["median"] <= told["speedup"]["high"]
        assert told["differs"] is None
    assert result["measurement"]["seeds"]["seeds"] == 3
    assert result["forecast"]["dtypes"][0]["overflows"] == []
    assert "Policies" in done.stdout


def test_a_list_of_policies_that_is_none_is_refused_before_anything_runs(folder: Path) -> None:
    done = amptui(folder, "check", "train.py:project", "--policies", "fp16,fp8")
    both = amptui(folder, "check", "train.py:project", "--policies", "fp16", "--dtype", "bf16")

    assert (done.returncode, both.returncode) == (2, 2)
    assert "'fp8' is no policy" in done.stderr
    assert "--dtype and --policies exclude each other" in both.stderr
    assert not (folder / "home").exists()


def test_cases_are_found_and_written(folder: Path) -> None:
    done = amptui(folder, "cases", "train.py:project", "-o", "found.pt", "--boundary", "2")

    assert done.returncode == 0, done.stderr
    assert "boundary-2" in done.stdout
    assert (folder / "found.pt").is_file()


def test_a_project_that_cannot_be_opened_is_one_sentence(folder: Path) -> None:
    done = amptui(folder, "cases", "train.py:nothing")

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "nothing" in done.stderr
