"""What GradScaler accepts without a word is told with its consequence and what to do."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from amptui.inspection.reading import inspect_path
from amptui.inspection.result import Inspection
from tests.inspection.writer import Obj, T, adam, save, scaler, weights


def inspect(tmp_path: Path, root: object) -> Inspection:
    return inspect_path(str(save(tmp_path / "x.pt", root)))


def codes(found: Inspection, severity: str = "fault") -> list[str]:
    return [str(finding.facts["code"]) for finding in found.findings if finding.severity == severity]


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (scaler(), []),
        (scaler(1.0), []),
        (scaler(2.0**24), []),
        (scaler(math.inf), ["scale-inf"]),
        (scaler(math.nan), ["scale-nan"]),
        (scaler(0.0), ["scale-zero"]),
        (scaler(-65536.0), ["scale-negative"]),
        (scaler(-math.inf), ["scale-inf"]),
        (scaler(2.0**-140), ["scale-tiny"]),
        (scaler(0.25), ["scale-tiny"]),
        (scaler(2.0**40), ["scale-huge"]),
        (scaler(2.0**127), ["scale-huge"]),
        (scaler("65536"), ["scaler-wrong-type"]),
        (scaler(None), ["scaler-wrong-type"]),
        (scaler(True), ["scaler-wrong-type"]),
        (scaler([65536.0]), ["scaler-wrong-type"]),
        (scaler({"a": 1}), ["scaler-wrong-type"]),
        (scaler(10**400), ["scaler-wrong-type"]),
        (scaler(10**4000), ["scaler-wrong-type"]),
        (scaler(65536), []),
        (scaler(T(65536.0, ())), []),
        (scaler(T(math.inf, (1,))), ["scale-inf", "nonfinite"]),
        (scaler(T(1.0, (3,))), ["scaler-wrong-type"]),
        (scaler(tracker=1999), []),
        (scaler(tracker=2000), ["tracker-past-interval"]),
        (scaler(tracker=5000), ["tracker-past-interval"]),
        (scaler(tracker=7, growth_interval=5), ["tracker-past-interval"]),
        (scaler(tracker=-3), ["tracker"]),
        (scaler(tracker=1.5), ["tracker"]),
        (scaler(tracker=math.nan), ["tracker"]),
        (scaler(tracker="7"), ["scaler-wrong-type"]),
        (scaler(growth_interval=0), ["interval"]),
        (scaler(growth_interval=-5), ["interval"]),
        (scaler(growth_interval=None), ["scaler-wrong-type"]),
        (scaler(growth_factor=1.0), ["growth-factor"]),
        (scaler(growth_factor=math.inf), ["growth-factor"]),
        (scaler(backoff_factor=1.0), ["backoff-factor"]),
        (scaler(backoff_factor=0.0), ["backoff-factor"]),
        ({key: value for key, value in scaler().items() if key != "_growth_tracker"}, ["scaler-incomplete"]),
        ({key: value for key, value in scaler().items() if key != "scale"}, ["scaler-incomplete"]),
        ({}, ["scaler-empty"]),
        (65536.0, ["scaler-wrong-type"]),
        ("65536", ["scaler-wrong-type"]),
        ({"mean": 0.0, "std": 1.0}, []),
        (Obj("sklearn.preprocessing._data.StandardScaler", state={"mean_": 1.0}), []),
    ],
)
def test_scaler_states(state: object, wanted: list[str], tmp_path: Path) -> None:
    found = inspect(tmp_path, {"model": weights(), "scaler": state})
    assert [code for code in codes(found) if code != "nonfinite-record"] == [
        code for code in wanted if code != "nonfinite"
    ]
    for finding in found.findings:
        assert finding.severity == "notice" or finding.advice
        assert finding.kind == finding.stage == "checkpoint"


def test_several_scalers_are_all_told_with_their_paths(tmp_path: Path) -> None:
    found = inspect(tmp_path, {"gan": {"scaler_g": scaler(8.0), "scaler_d": scaler(math.inf)}, "list": [scaler(2.0)]})
    assert {state.path: state.scale for state in found.scalers} == {
        "gan.scaler_g": 8.0,
        "gan.scaler_d": math.inf,
        "list.0": 2.0,
    }
    assert codes(found) == ["scale-inf"]


def test_a_scaler_that_is_the_whole_file(tmp_path: Path) -> None:
    found = inspect(tmp_path, scaler(0.0))
    assert found.scalers[0].path == ""
    assert found.findings[0].evidence[0].startswith("the file itself: the scale is zero")


def test_a_scaler_saved_disabled_is_fine_where_the_run_did_not_scale(tmp_path: Path) -> None:
    bfloat16 = inspect(tmp_path, {"model": weights("bfloat16"), "scaler": {}})
    assert codes(bfloat16) == []
    assert "scaler-empty" in codes(bfloat16, "notice")
    off = inspect(tmp_path, {"model": weights(), "scaler": {}, "args": {"amp": False}})
    assert codes(off) == []


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ({"fp16": True}, True),
        ({"fp16": {"enabled": True}}, True),
        ({"precision": "16-mixed"}, True),
        ({"precision": 16}, True),
        ({"mixed_precision": "fp16"}, True),
        ({"amp": True}, True),
        ({"dtype": "float16"}, True),
        ({"dtype": "bfloat16"}, False),
        ({"amp": True, "amp_dtype": "bfloat16"}, False),
        ({"fp16": False}, False),
        ({"bf16": True}, False),
        ({"precision": "bf16-mixed"}, False),
        ({"precision": "32-true"}, False),
        ({}, False),
    ],
)
def test_a_scaler_is_missed_where_the_run_used_fp16(setting: dict[str, object], fault: bool, tmp_path: Path) -> None:
    found = inspect(tmp_path, {"model": weights(), "optimizer": adam(), "hparams": setting})
    assert ("scaler-missing" in codes(found)) is fault
    assert ("scaler" in found.missing) is (fault or not setting)


def test_half_weights_with_master_copies_used_fp16(tmp_path: Path) -> None:
    found = inspect(tmp_path, {"model": weights("float16"), "optimizer": {**adam(), "fp32_from_fp16_params": [T()]}})
    assert codes(found) == ["scaler-missing"]


@pytest.mark.parametrize(("scale", "said"), [(1.0, True), (8.0, True), (16.0, False), (65536.0, False)])
def test_a_low_scale_is_a_notice(scale: float, said: bool, tmp_path: Path) -> None:
    assert ("scale-low" in codes(inspect(tmp_path, {"scaler": scaler(scale)}), "notice")) is said


def test_deepspeed_counts_from_its_last_overflow(tmp_path: Path) -> None:
    state = {"cur_scale": 4.0, "cur_iter": 2505, "last_overflow_iter": 4, "scale_factor": 2.0, "scale_window": 1000}
    found = inspect(tmp_path, {"optimizer": state}).scalers[0]
    assert (found.growth_tracker, found.growth_interval, found.backoff_factor) == (500, 1000, 0.5)


def test_a_floor_is_a_notice(tmp_path: Path) -> None:
    state = {
        "cur_scale": 1.0,
        "cur_iter": 9,
        "last_overflow_iter": 8,
        "scale_factor": 2.0,
        "scale_window": 9,
        "min_scale": 1,
    }
    assert "scale-at-floor" in codes(inspect(tmp_path, {"optimizer": state}), "notice")
