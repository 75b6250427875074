"""amptui's own FP32 checkpoint, as `amptui restore` gives it: nothing is missing that the project does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amptui.inspection.reading import inspect_path
from tests.inspection.writer import T, adam, save


def own(**changes: Any) -> dict[str, Any]:
    return {
        "model": {
            "fc.weight": T(0.5, (2, 2)),
            "bn.running_var": T(1.0, (2,)),
            "bn.num_batches_tracked": T(1, (), "int64"),
        },
        "non_persistent_buffers": {"positions": T(1.0, (2,))},
        "optimizers": {"main": adam(0)},
        "schedulers": {},
        "rng": {"torch": T(1, (16,), "uint8")},
        "position": {"step": 0},
        "amptui": {"format": 1, "amptui": "0.1.0"},
        **changes,
    }  # fmt: skip


def test_a_project_without_scheduler_misses_none(tmp_path: Path) -> None:
    found = inspect_path(str(save(tmp_path / "fp32.pt", own())))
    assert (found.format, found.title) == ("amptui", "FP32 checkpoint of amptui 0.1.0")
    assert found.missing == ()
    assert found.findings == ()


@pytest.mark.parametrize("without", ["rng", "optimizers"])
def test_what_is_not_like_it_is_not_taken_for_it(without: str, tmp_path: Path) -> None:
    content = own()
    del content[without]
    found = inspect_path(str(save(tmp_path / "x.pt", content)))
    assert found.format == "plain"
    assert "scheduler" in found.missing


def test_buffers_are_called_so_where_their_names_or_dtypes_tell(tmp_path: Path) -> None:
    found = inspect_path(str(save(tmp_path / "fp32.pt", own())))
    assert dict(found.dtypes["parameters"]) == {"float32": 1}
    assert dict(found.dtypes["buffers"]) == {"float32": 2, "int64": 1}
