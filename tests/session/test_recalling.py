"""Retained cases asked for again, in real processes: as they were, mended, elsewhere, and with another model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.recalling import named_case, opened_with, retained_cases
from tests.commands import Amptui

PROJECT = """
import torch
from torch import nn
from amptui import Policy, Project, Scaler, Update

WIDTH = 8


class Power(nn.Module):
    def forward(self, h):
        return torch.log1p(h**4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.power = nn.Linear(4, WIDTH), Power()
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.head(self.drop(self.power(self.enter(x))))


def loss(model, batch):
    x, weight = batch
    return model(x).float().square().mean() * weight


def project():
    torch.manual_seed(0)
    model = Net()
    batches = [(torch.randn(6, 4) * (200.0 if i == 2 else 1.0), torch.tensor(1.0)) for i in range(5)]
    return Project(
        model=model,
        updates=[Update(optimizer=torch.optim.SGD(model.parameters(), lr=1e-3), loss=loss)],
        batches=batches,
        policy=Policy(scaler=Scaler(init_scale=16.0)),
    )
"""
MENDED = ("h**4", "h.float() ** 4")
ELSEWHERE = (MENDED, ("self.enter(x)", "self.enter(x * 1e4)"))
OTHER_MODEL = (("WIDTH = 8", "WIDTH = 9"),)


@pytest.fixture(scope="module")
def amptui(tmp_path_factory: pytest.TempPathFactory) -> Amptui:
    """A session in which the case of step 2 was retained."""
    amptui = Amptui(tmp_path_factory.mktemp("recalling"))
    (amptui.folder / "train.py").write_text(PROJECT)
    assert amptui.check("train.py:project").code == 1
    return amptui


def edited(amptui: Amptui, *edits: tuple[str, str]) -> Path:
    source = PROJECT
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    file = amptui.folder / "train.py"
    file.write_text(source)
    return file


def session_of(amptui: Amptui) -> SessionFolder:
    [folder] = [path for path in amptui.home.iterdir() if (path / "session.sqlite").exists() or path.is_dir()]
    return SessionFolder.open(folder)


@pytest.fixture(scope="module")
def case(amptui: Amptui) -> str:
    [kept] = retained_cases(session_of(amptui))
    assert (kept.step, kept.outcome) == (2, "bad_loss")
    return kept.id


def test_cases_are_listed_with_the_command_that_replays_one(amptui: Amptui, case: str) -> None:
    done = amptui("replay")
    assert done.code == 0
    assert f"amptui replay {case}" in done.said
    assert "step 2" in done.said


def test_the_same_source_fails_at_the_same_place(amptui: Amptui, case: str) -> None:
    line = edited(amptui).read_text().splitlines().index("        return torch.log1p(h**4)") + 1
    done = amptui("replay", case)
    assert done.code == 1, done.said
    assert "SAME" in done.out
    assert f"power · pow · train.py:{line}" in done.out
    assert "true FP32, no scaling finite" in done.said


def test_a_mended_source_is_told_as_fixed(amptui: Amptui, case: str) -> None:
    edited(amptui, MENDED)
    done = amptui("replay", case)
    assert done.code == 0, done.said
    assert "FIXED" in done.out


def test_a_fault_elsewhere_is_told_as_another_place(amptui: Amptui, case: str) -> None:
    edited(amptui, *ELSEWHERE)
    done = amptui("replay", case)
    assert done.code == 1, done.said
    assert "OTHER PLACE" in done.out
    assert "enter" in done.out


def test_another_model_is_refused_with_the_tensor_that_does_not_fit(amptui: Amptui, case: str) -> None:
    edited(amptui, *OTHER_MODEL)
    done = amptui("replay", case)
    assert done.code == 2, done.said
    assert "does not fit" in done.said
    assert "enter.weight is [9, 4]" in done.said
    assert "Traceback" not in done.said


def test_a_case_that_is_not_there_is_answered_with_those_that_are(amptui: Amptui, case: str) -> None:
    done = amptui("replay", "step-000099")
    assert done.code == 2
    assert case in done.said


def test_the_exported_script_shows_the_failure_without_amptui(amptui: Amptui, case: str) -> None:
    edited(amptui)
    target = amptui.folder / "shown"
    assert amptui("replay", case, "--export", target).code == 0
    assert sorted(path.name for path in target.iterdir()) == ["case.pt", "show_failure.py"]
    shown = without_amptui(target / "show_failure.py")
    assert "loss of micro-batch 0: inf" in shown or "loss of micro-batch 0: nan" in shown
    edited(amptui, MENDED)
    assert "not finite" not in without_amptui(target / "show_failure.py")


def test_an_export_never_writes_into_a_folder_that_is_there(amptui: Amptui, case: str) -> None:
    target = amptui.folder / "taken"
    target.mkdir()
    (target / "mine.txt").write_text("mine")
    done = amptui("replay", case, "--export", target)
    assert done.code == 2
    assert [path.name for path in target.iterdir()] == ["mine.txt"]


def test_the_project_is_opened_again_as_it_was(amptui: Amptui, case: str) -> None:
    folder = session_of(amptui)
    assert opened_with(folder).spec == f"{amptui.folder / 'train.py'}:project"
    assert named_case(folder, case).step == 2
    with pytest.raises(SessionError, match="it has:"):
        named_case(folder, "none")


def without_amptui(script: Path) -> str:
    """What the script prints in an interpreter in which amptui cannot be imported."""
    code = f"import sys, runpy; sys.modules['amptui'] = None; runpy.run_path({str(script)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
