"""Skipped updates: a few are usual, half of them are a fault, and a count of micro-batches is neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from amptui.inspection.reading import inspect_path
from tests.inspection.frameworks import _deepspeed_state, _lightning
from tests.inspection.writer import adam, save, scaler, weights


def severity_of_skips(path: Path) -> list[str]:
    found = inspect_path(str(path))
    return [finding.severity for finding in found.findings if finding.facts["code"] == "skipped"]


@pytest.mark.parametrize(
    ("skipped", "wanted"), [(0, []), (3, ["notice"]), (49, ["notice"]), (50, ["fault"]), (100, ["fault"])]
)
def test_shares_of_skips(skipped: int, wanted: list[str], tmp_path: Path) -> None:
    assert severity_of_skips(save(tmp_path / "mp.pt", _deepspeed_state(skipped_steps=skipped))) == wanted


def test_a_loop_that_counts_micro_batches_is_no_fault(tmp_path: Path) -> None:
    root = {"model": weights(), "optimizer": adam(25), "scaler": scaler(), "global_step": 100}
    assert severity_of_skips(save(tmp_path / "a.pt", root)) == ["notice"]


def test_an_exact_loop_is(tmp_path: Path) -> None:
    assert severity_of_skips(save(tmp_path / "b.ckpt", _lightning("MixedPrecision", 1, 1000))) == ["fault"]


def test_steps_before_the_optimizers_are_no_skips(tmp_path: Path) -> None:
    path = save(tmp_path / "c.pt", {"model": weights(), "optimizer": adam(250), "step": 100})
    assert inspect_path(str(path)).steps.skipped is None
