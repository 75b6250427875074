"""Tensors that spoil a resume: not finite, rounded away, in half precision, under the wrong name."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from amptui.inspection.reading import inspect_path
from amptui.inspection.result import Inspection
from tests.inspection.writer import T, adam, save, scaler, step, weights


def inspect(tmp_path: Path, root: object) -> Inspection:
    return inspect_path(str(save(tmp_path / "x.pt", root)))


def faults(found: Inspection) -> list[str]:
    return [str(finding.facts["code"]) for finding in found.findings if finding.severity == "fault"]


@pytest.mark.parametrize(
    ("place", "role"),
    [
        ("model", "parameters"),
        ("ema", "ema"),
        ("model_ema", "ema"),
        ("state_dict_ema", "ema"),
        ("optimizer", "optimizer_state"),
    ],
)
def test_values_that_are_not_finite_are_named(place: str, role: str, tmp_path: Path) -> None:
    root: dict[str, object] = {"model": weights(), "optimizer": adam(), "scaler": scaler()}
    if place == "optimizer":
        root["optimizer"] = adam(second=math.inf)
        paths = ("optimizer.state.0.exp_avg_sq", "optimizer.state.1.exp_avg_sq")
    else:
        root[place] = {**weights(), "bn.running_var": T([1.0, math.nan], (2,))}
        paths = (f"{place}.bn.running_var",)
    found = inspect(tmp_path, root)
    assert found.nonfinite == paths
    assert faults(found) == ["nonfinite"]
    assert found.findings[0].facts["role"] == role
    assert {tensor.role for tensor in found.tensors if tensor.path in paths} == {role}


def test_master_copies(tmp_path: Path) -> None:
    optimizer = {**adam(), "fp32_from_fp16_params": [T(math.nan)]}
    found = inspect(tmp_path, {"model": weights("float16"), "optimizer": optimizer, "scaler": scaler()})
    assert found.findings[0].facts["role"] == "master_copies"
    assert found.dtypes["master_copies"] == {"float32": 1}


def test_a_mask_of_minus_infinity_is_meant(tmp_path: Path) -> None:
    found = inspect(tmp_path, {"state_dict": {"attn.causal_mask": T([0.0, -math.inf], (4,)), "w": T(1.0)}})
    assert found.nonfinite == ()
    assert faults(found) == []
    found = inspect(tmp_path, {"state_dict": {"attn.causal_mask": T([0.0, math.nan], (4,)), "w": T(1.0)}})
    assert faults(found) == ["nonfinite"]


def test_records_that_were_never_set_are_no_fault(tmp_path: Path) -> None:
    found = inspect(tmp_path, {"model": weights(), "callbacks": {"best_model_score": T(math.inf, ())}})
    assert faults(found) == []
    measured = {"loss": T(math.nan, ()), "val_losses": [T(math.nan, (1,))], "odd_number": T(math.inf, ())}
    assert faults(inspect(tmp_path, {"model": weights(), **measured})) == []
    assert faults(inspect(tmp_path, {"temperature": T(math.inf, ()), "w": T(1.0)})) == ["nonfinite"]


def test_averaged_weights_of_a_callback_are_weights(tmp_path: Path) -> None:
    callbacks = {"EMA": {"ema_state_dict": {"w": T(math.nan)}}}
    found = inspect(tmp_path, {"state_dict": weights(), "pytorch-lightning_version": "2", "callbacks": callbacks})
    assert faults(found) == ["nonfinite"]
    assert found.findings[0].facts["role"] == "ema"


@pytest.mark.parametrize(
    ("optimizer", "model", "wanted"),
    [
        (adam(dtype="float16"), "float32", ["moments-half"]),
        (adam(dtype="float16", second=0.0), "float32", ["moments-lost", "moments-half"]),
        (adam(second=0.0), "float32", ["moments-lost"]),
        (adam(dtype="bfloat16"), "float32", ["moments-half"]),
        (adam(dtype="bfloat16"), "bfloat16", []),
        (adam(), "float32", []),
        (adam(), "float16", ["weights-half"]),
        (adam(counter=step(300, "bfloat16")), "float32", ["step-half"]),
        (adam(counter=step(2048, "float16")), "float32", ["step-half"]),
    ],
)
def test_half_precision_where_it_does_harm(optimizer: object, model: str, wanted: list[str], tmp_path: Path) -> None:
    root = {"model": {"fc.weight": T(0.5, (2, 3), model)}, "optimizer": optimizer, "scaler": scaler()}
    assert faults(inspect(tmp_path, root)) == wanted


def test_untrained_moments_are_not_lost(tmp_path: Path) -> None:
    entry = {"step": step(1), "exp_avg": T(0.0, (3,)), "exp_avg_sq": T(0.0, (3,))}
    found = inspect(tmp_path, {"model": weights(), "optimizer": {"state": {0: entry}, "param_groups": []}})
    assert faults(found) == []
    assert "optimizer.state.0.exp_avg_sq" in found.zero


def test_a_model_of_zeros(tmp_path: Path) -> None:
    found = inspect(
        tmp_path, {"model": {"a.weight": T(0.0, (2, 2)), "b.weight": T(0.0, (3, 2)), "b.bias": T(0.0, (2,))}}
    )
    assert faults(found) == ["weights-zero"]


def notices(found: Inspection) -> list[str]:
    return [str(finding.facts["code"]) for finding in found.findings if finding.severity == "notice"]


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod."])
def test_prefixes_of_wrappers(prefix: str, tmp_path: Path) -> None:
    found = inspect(tmp_path, {"model": weights(prefix=prefix)})
    assert faults(found) == []
    assert "prefix" in notices(found)
    mixed = inspect(tmp_path, {"model": {**weights(prefix=prefix), "head.weight": T(1.0, (2, 2))}})
    assert faults(mixed) == ["prefix-mixed"]
    assert "4 keys" in mixed.findings[0].evidence[0]
    alone = inspect(tmp_path, weights(prefix=prefix))
    assert "prefix" in notices(alone)
    assert "prefix" not in notices(inspect(tmp_path, {"module": weights()}))


def test_averaged_models_have_their_own_prefix(tmp_path: Path) -> None:
    found = inspect(tmp_path, {"model_ema": {**weights(prefix="module."), "n_averaged": T(3, (), "int64")}})
    assert "prefix" not in notices(found)
    assert faults(found) == []
