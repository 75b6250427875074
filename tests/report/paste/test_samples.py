"""The code to paste gives every sample's trial again, bit for bit: weights, buffers, optimizer state, scale."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import Tensor

from amptui.engine import rng
from amptui.protocol.events import Event, IterationDone, TrialDone
from amptui.report.paste.plan import plan_of
from amptui.report.paste.program import training_code
from tests.engine.conducted import opened_by
from tests.engine.projects import assert_same_bits, state_of
from tests.report.paste.pasted import pasted

SAMPLES = Path(__file__).parents[3] / "sample_projects"


def load_sample(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pasted_{name}", SAMPLES / name / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "policy", "skips"),
    [
        ("digits", {"dtype": "float16"}, False),
        ("digits", {"dtype": "bfloat16"}, False),
        # skips at first: the scheduler must fall behind, and the growth tracker start over
        ("digits", {"dtype": "float16", "scaler": {"init_scale": 2.0**24, "growth_interval": 7}}, True),
        ("gan", {"dtype": "float16"}, False),
        ("gan", {"dtype": "float16", "buffers": "rollback", "scaler": {"init_scale": 2.0**26}}, True),
        ("diabetes", {"dtype": "float16", "fp32_regions": ["normalise"]}, False),
        ("diabetes", {"dtype": "bfloat16"}, False),
    ],
)
def test_pasted_code_reproduces_the_trial(
    name: str, policy: dict[str, Any], skips: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = load_sample(name)
    trial = opened_by(
        dataclasses.replace(sample.project(), cases=sample.project().cases[:2]),
        tmp_path,
        monkeypatch,
        policy=policy,
        iterations=12,
    )
    bench = trial.conductor.bench
    assert bench is not None
    left: dict[str, Tensor] = {}
    rates: list[float] = []

    def note(event: Event, send: Callable[[Event], int] = trial.recorder.send) -> int:
        """Keeps what the trial left behind: afterwards the engine goes back to the checkpoint."""
        if isinstance(event, TrialDone):
            left.update(copy.deepcopy(state_of(bench.live.project.model, bench.live.project.updates)))
            rates.extend(update.update.optimizer.param_groups[0]["lr"] for update in bench.live.updates)
        return send(event)

    monkeypatch.setattr(trial.recorder, "send", note)
    trial.judge()
    state = trial.state
    assert state.policy is not None
    assert state.project is not None
    assert any(count.skipped for count in state.verdict.counts) == skips, "the example tests what it says"

    fresh = sample.project()
    run = pasted(training_code(plan_of(state.project, state.policy), made_from="a test"), fresh)
    rng.restore(bench.rng)
    run.run(bench.live.batches.batches)

    assert_same_bits(state_of(fresh.model, fresh.updates), left)
    assert [update.optimizer.param_groups[0]["lr"] for update in fresh.updates] == rates
    last = [event.record for event in trial.all(IterationDone) if event.run == "trial"][-1]
    if state.policy.effective_scaler is not None:
        scaler = run.objects["scaler"].state_dict()
        assert (scaler["scale"], scaler["_growth_tracker"]) == (last.scale_after, last.growth_tracker)
