"""What a result depends on: versions, the device as it is, and the state of the user's repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from amptui.engine.environment import environment
from amptui.engine.memory import MemoryGauge


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_the_commit_and_changes_of_the_users_repository(tmp_path: Path) -> None:
    assert environment(torch.device("cpu"), tmp_path).git_commit is None
    git(tmp_path, "init")
    (tmp_path / "train.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    index = (tmp_path / ".git" / "index").stat()
    clean = environment(torch.device("cpu"), tmp_path)
    assert clean.git_commit is not None
    assert len(clean.git_commit) == 40
    assert clean.git_dirty is False
    (tmp_path / "train.py").write_text("x = 2\n")
    assert environment(torch.device("cpu"), tmp_path).git_dirty is True
    assert (tmp_path / ".git" / "index").stat().st_mtime_ns == index.st_mtime_ns, "asking writes nothing"


def test_without_git_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = environment(torch.device("cpu"), tmp_path)
    assert (told.git_commit, told.git_dirty) == (None, None)


@pytest.mark.parametrize(("hip", "cuda", "name"), [("6.4", None, "ROCm 6.4"), (None, "12.8", "CUDA 12.8")])
def test_rocm_is_not_taken_for_cuda(
    hip: str | None, cuda: str | None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    assert environment(torch.device("cpu"), tmp_path).accelerator == name


def test_memory_is_read_at_most_so_often() -> None:
    gauge = MemoryGauge(torch.device("cpu"), interval=60.0)
    first = gauge.read()
    held = torch.ones(10_000_000)
    assert gauge.read() == first > 0
    assert MemoryGauge(torch.device("cpu")).read() > first
    assert held.numel()
