"""What goes beyond a verdict, written by hand as the events that the engine tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from amptui.findings.foreseen import DtypeForecast, PlaceForecast, ScaleForecast
from amptui.findings.gain import Claim, Memory, SeedSpread, Spread
from amptui.findings.judgement import ScaleCourse
from amptui.project import Policy
from amptui.protocol import events as told
from amptui.protocol.measuring import FoundCase, ModulePrecision
from tests.report.stages import Told, baseline, counts, ended, locked, opened, row, started, verdict


def place(module: str = "conv", **changes: Any) -> PlaceForecast:
    values: dict[str, Any] = {
        "phase": "forward",
        "module": module,
        "op": "convolution",
        "line": "net.py:31",
        "dtype": "float16",
        "results": 40,
        "largest": 230_000.0,
        "headroom": 0.2848,
        "lost": 0.0,
        "step": 4,
    }
    return PlaceForecast(**{**values, **changes})


SCALES = (ScaleForecast(scale=2.0**12, fits=True, lost=0.25), ScaleForecast(scale=2.0**16, fits=False, lost=0.0))


def forecast(*overflows: PlaceForecast, failed: str | None = None, **changes: Any) -> told.ForecastMade:
    values: dict[str, Any] = {
        "dtype": "float16",
        "overflows": overflows,
        "places": (place("head", largest=655.04, headroom=100.0),),
        "initial_scale": 2.0**12,
        "limited_by": place("head", phase="backward", op="mm"),
        "beyond_every_scale": 2,
        "scales": SCALES,
    }
    half = DtypeForecast(**{**values, **changes})
    brain = DtypeForecast(dtype="bfloat16", failed="RuntimeError: no kernel", failed_at="net.py:9", initial_scale=1.0)
    return told.ForecastMade(
        windows=40, iterations=40, cases=4, dtypes=() if failed else (half, brain), seconds=1.0, failed=failed
    )


def mapped(trial: int = 1, **changes: Any) -> told.PrecisionMapped:
    values: dict[str, Any] = {
        "trial": trial,
        "dtype": "float16",
        "modules": (ModulePrecision(path="conv", ops={"float16": 3}, casts=5, cast_bytes=2048, own_casts=0),),
        "ops": {"float16": 3, "float32": 9},
        "casts": 5,
        "cast_bytes": 2048,
        "own_casts": 0,
        "cast_seconds": None,
        "words": "3 of 12 ops ran in half (25%)",
    }
    return told.PrecisionMapped(**{**values, **changes})


FASTER = Claim(subject="time", direction="better", words="2.00 times as fast as FP32", figure=2.0)
SMALLER = Claim(subject="memory", direction="better", words="peak device memory: 40% less", figure=0.6)
SAME = Claim(subject="time", direction="none", words="no difference in time beyond the noise")


def measured(trial: int = 1, dtype: str = "float16", *claims: Claim, **changes: Any) -> told.Measured:
    values: dict[str, Any] = {
        "trial": trial,
        "policy": Policy(dtype=dtype),
        "what": "training step",
        "device": "cuda:0",
        "precision": {"float32 matmul": "high", "cuda matmul": "tf32", "mkldnn conv": "none"},
        "clock": "CUDA events",
        "rounds": 12,
        "steps_per_round": 8,
        "fp32": Spread(low=0.0098, median=0.0104, high=0.0112, count=12),
        "mixed": Spread(low=0.0049, median=0.0052, high=0.0056, count=12),
        "speedup": Spread(low=1.9, median=2.0, high=2.1, count=12),
        "same": Spread(low=0.99, median=1.0, high=1.01, count=12),
        "left_out": 1,
        "memory": Memory(kind="device", fp32=1000, fp32_again=1000, mixed=600),
        "cases": 4,
        "differs": None,
        "claims": claims,
    }
    return told.Measured(**{**values, **changes})


SEEDS = told.SeedsMeasured(
    seeds=3,
    spreads=(
        SeedSpread(what="loss of main", subject="loss", baseline=0.5, others=(0.48, 0.53, 0.49)),
        SeedSpread(what="quality", subject="quality", baseline=0.95, others=(0.94, 0.95, 0.96)),
    ),
    seconds=3.0,
)

FOUND = told.CasesFound(
    samples=1280,
    found=(
        FoundCase(id="boundary-1", tag="boundary", why="near", batch=32, sample=2, decision=3, margin=0.25),
        FoundCase(id="empty", tag="edge", why="all zero", batch=None, sample=None),
    ),
    remarks=("2 samples are not finite",),
    path="/tmp/found.pt",
)


def trial(number: int, dtype: str, decided: str, *, scaled: bool) -> Told:
    progress = row("progress", None, what="mean loss of main", baseline=0.5, trial=0.51, measured=0.02, update="main")
    rows = [row("updates", decided == "accept", what="updates"), progress]
    course = ScaleCourse(initial=65536.0, final=4096.0, lowest=4096.0) if scaled else None
    counted = (counts(38, skipped=2),)
    begun, reached, last, _goodbye = verdict(decided, f"{decided}: as it was.", rows, scaler=course, counts=counted)
    assert isinstance(reached, told.VerdictReached)
    return (
        started("trial"),
        told.TrialStarted(trial=number, policy=Policy(dtype=dtype), iterations=40, revision=1, attended=False),
        told.TrialDone(trial=number, completed=True, counts=counted, scaler=course, quality=0.955, seconds=2.0),
        begun,
        replace(reached, trial=number),
        mapped(number, dtype=dtype),
        last,
    )


def side_by_side(*, measure: bool = True, first: str = "accept") -> Told:
    """Two policies under one baseline and one set of criteria, and what was measured of them."""
    stages = [
        *opened(),
        *baseline()[:-1],
        forecast(),
        ended("baseline"),
        *locked(),
        *trial(1, "float16", first, scaled=True),
        *trial(2, "bfloat16", "accept", scaled=False),
    ]
    if measure:
        stages += [
            started("measure"),
            measured(1, "float16", FASTER, SMALLER),
            ended("measure"),
            started("measure"),
            measured(2, "bfloat16", SAME),
            ended("measure"),
            started("measure"),
            SEEDS,
            ended("measure"),
        ]
    return tuple(stages)
