"""What holds for every sample project."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import yaml

from amptui import Policy, Project

NAMES = ("digits", "diabetes", "gan")
SPEC_KEYS = {"entry", "args", "app_dir", "python", "device", "iterations", "session", "policy", "criteria"}


def state_of(project: Project) -> list[torch.Tensor]:
    modules = project.model.values() if isinstance(project.model, dict) else [project.model]
    return [tensor for module in modules for tensor in module.state_dict().values()]


def batches_of(project: Project) -> list[torch.Tensor]:
    batches = project.batches() if callable(project.batches) else project.batches
    return [part for batch in batches for part in (batch if isinstance(batch, list | tuple) else [batch])]


@pytest.mark.parametrize("name", NAMES)
def test_two_builds_give_the_same_weights_batches_and_cases(name, sample):
    first, second = sample(name).project(), sample(name).project()
    for read in (state_of, batches_of, lambda project: [case.inputs for case in project.cases]):
        ours, theirs = read(first), read(second)
        assert len(ours) == len(theirs) > 0
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_batches_come_in_the_same_order_each_time_they_are_asked_for(name, sample):
    project = sample(name).project()
    first, second = batches_of(project), batches_of(project)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_case_ids_are_unique_and_every_tag_is_used(name, sample):
    cases = sample(name).project().cases
    assert len({case.id for case in cases}) == len(cases)
    assert {case.tag for case in cases} == {"ordinary", "edge", "boundary"}


@pytest.mark.parametrize("name", NAMES)
def test_the_fp32_run_is_finite_and_trains(name, run):
    result = run(name, torch.float32)
    for row in (*result.before, *result.after):
        assert all(tensor.isfinite().all() for tensor in row.outputs.values()), row.id
    for trace in result.updates.values():
        assert all(trace.applied)
        assert torch.tensor(trace.losses).isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_models_are_handed_over_in_training_mode_and_in_float32(name, sample):
    project = sample(name).project()
    modules = project.model.values() if isinstance(project.model, dict) else [project.model]
    for module in modules:
        assert all(part.training for part in module.modules())
        assert {p.dtype for p in module.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", NAMES)
def test_without_scikit_learn_the_error_says_what_to_install(name, sample, monkeypatch):
    module = sample(name)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'amptui\[samples\]'"):
        module.project()


@pytest.mark.parametrize("name", NAMES)
def test_amptui_yaml_names_the_factory_and_a_valid_policy(name, sample, samples_folder: Path):
    spec = yaml.safe_load((samples_folder / name / "amptui.yaml").read_text(encoding="utf-8"))
    assert set(spec) <= SPEC_KEYS
    file, attribute = spec["entry"].split(":")
    assert (samples_folder / name / file).is_file()
    assert callable(getattr(sample(name), attribute))
    assert Policy(**spec["policy"]).dtype == "float16"


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_that_amptui_yaml_offers_in_comments_are_valid_too(name, samples_folder: Path):
    text = (samples_folder / name / "amptui.yaml").read_text(encoding="utf-8")
    offered = [
        line.replace("# ", "", 1) if line.lstrip().startswith("# ") and _is_setting(line) else line
        for line in text.splitlines()
    ]
    spec = yaml.safe_load("\n".join(offered))
    assert set(spec) <= SPEC_KEYS
    assert spec != yaml.safe_load(text)
    Policy(**spec["policy"])


def _is_setting(comment: str) -> bool:
    """Whether a comment holds a key or a list item rather than a sentence."""
    words = comment.lstrip()[2:].strip()
    return words.startswith("- ") or words.split(" ")[0].endswith(":")
