"""Which files of a folder are read, and what is said of sets of files that are not whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from amptui.inspection.containers.source import UnreadableError
from amptui.inspection.folder import MAX_ALIKE, plan
from amptui.inspection.reading import inspect_path
from tests.inspection.frameworks import LAYOUTS, _hf, save_as
from tests.inspection.writer import save, scaler, weights


def test_folders_that_lead_round_in_circles(tmp_path: Path) -> None:
    for number in range(1, 4):
        (tmp_path / f"checkpoint-{number}").symlink_to(tmp_path)
    with pytest.raises(UnreadableError, match="no checkpoint"):
        plan(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("5")
    (tmp_path / "iter_0000005").symlink_to(tmp_path)
    with pytest.raises(UnreadableError, match="circle"):
        plan(tmp_path)


@pytest.mark.parametrize("name", ["../outside", "/etc", "a\0b", "", "nothing", "x" * 5000])
@pytest.mark.parametrize("pointer", ["latest", "latest_checkpointed_iteration.txt", "last_checkpoint"])
def test_pointers_lead_nowhere_else(pointer: str, name: str, tmp_path: Path) -> None:
    save(tmp_path / "outside" / "x.pt", {"scaler": scaler()})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / pointer).write_bytes(name.encode())
    found = inspect_path(str(tmp_path / "run"))
    assert not found.readable
    assert found.findings[0].facts["code"] == "unreadable"


def test_the_newest_finished_save_of_a_run_is_shown(tmp_path: Path) -> None:
    for number in (30, 200, 1000):
        _hf(tmp_path, f"checkpoint-{number}")
    found = inspect_path(str(tmp_path))
    assert not found.has_fault
    several = next(finding for finding in found.findings if finding.facts["code"] == "several-saves")
    assert several.facts["path"] == "checkpoint-1000"


def test_many_ranks_are_read_in_part_and_this_is_said(tmp_path: Path) -> None:
    base, _ = LAYOUTS["accelerate"](tmp_path)
    data = (base / "random_states_0.pkl").read_bytes()
    for rank in range(1, 40):
        save_as(base / f"random_states_{rank}.pkl", data)
    chosen = plan(base)
    assert len([name for name in chosen.files if name.startswith("random")]) == MAX_ALIKE
    assert chosen.complete


def test_what_an_interrupted_save_left_is_told(tmp_path: Path) -> None:
    save(tmp_path / "last.pt", {"model": weights()})
    save_as(tmp_path / "tmp-last.pt.tmp", b"PK")
    found = inspect_path(str(tmp_path))
    assert found.files == ("last.pt",)
    assert "unfinished" in [finding.facts["code"] for finding in found.findings]
    (tmp_path / "last.pt").unlink()
    assert not inspect_path(str(tmp_path)).readable


def test_a_damaged_part_does_not_hide_the_others(tmp_path: Path) -> None:
    base = _hf(tmp_path)
    (base / "optimizer.pt").write_bytes(b"")
    (base / "scheduler.pt").write_bytes((base / "scheduler.pt").read_bytes()[:100])
    (base / "rng_state.pth").unlink()
    (base / "rng_state.pth").mkdir()
    found = inspect_path(str(base))
    assert found.scalers[0].scale == 256.0
    assert not found.complete
    assert "optimizer" in found.missing
    told = " ".join(finding.evidence[0] for finding in found.findings)
    assert "optimizer.pt: the file is empty" in told
