"""What goes beyond the verdict: the forecast, the map of precision, the measurement, the yardstick, found cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from amptui.findings.foreseen import DtypeForecast
from amptui.findings.gain import Claim, Memory, SeedSpread, Spread
from amptui.project import Policy
from amptui.protocol.base import Command, Event

# Commands.


@dataclass(frozen=True, kw_only=True)
class Measure(Command):
    """Time an accepted trial's policy against FP32, without any diagnostics; None means the last accepted one."""

    trial: int | None = None
    #: Seconds after which no further round is begun; at least five are run.
    seconds: float = 20.0


@dataclass(frozen=True, kw_only=True)
class MeasureSeeds(Command):
    """Repeat the FP32 stretch under `seeds` other seeds: the yardstick for a trial's effect."""

    seeds: int = 3


@dataclass(frozen=True, kw_only=True)
class FindCases(Command):
    """Look through the batches in FP32 for inputs that are worth being a case; write them to `path` if given."""

    path: str | None = None
    #: How many boundary cases at most.
    boundary: int = 5


#: What the stage measure does: it has several commands, and finding cases is no step of a session's way.
Task = Literal["time", "seeds", "cases"]
TASKS: Mapping[type[Command], Task] = {Measure: "time", MeasureSeeds: "seeds", FindCases: "cases"}


# The forecast.


@dataclass(frozen=True, kw_only=True)
class ForecastMade(Event):
    """What FP32 alone foretells of each dtype. `windows` of `iterations` were read, and so many `cases`."""

    windows: int
    iterations: int
    cases: int
    dtypes: tuple[DtypeForecast, ...]
    seconds: float
    #: Why there is none: code that cannot run under observation.
    failed: str | None = None


# The map of precision.


@dataclass(frozen=True, kw_only=True)
class ModulePrecision:
    """The ops of one module, forward and backward, by the dtype that they compute in."""

    #: Dotted path; `loss` or `outputs` for code outside of all modules.
    path: str
    ops: Mapping[str, int]
    #: Casts that autocast put in (and those that backward makes of them), and the bytes that they write.
    casts: int
    cast_bytes: int
    #: Casts that the project's own code asks for.
    own_casts: int


@dataclass(frozen=True, kw_only=True)
class PrecisionMapped(Event):
    """One window (or case) under the policy, op by op. `words` say whether autocast did anything."""

    trial: int
    dtype: str
    modules: tuple[ModulePrecision, ...]
    ops: Mapping[str, int]
    casts: int
    cast_bytes: int
    own_casts: int
    #: Seconds that the casts take alone, on CUDA; None elsewhere.
    cast_seconds: float | None
    words: str
    failed: str | None = None


# The measurement.


@dataclass(frozen=True, kw_only=True)
class Measured(Event):
    """FP32 and the policy in turn, in random order, on the same batches; times in seconds a step."""

    trial: int
    policy: Policy
    #: `training step`: forward, backward, clipping, step; `inference`: all cases once.
    what: Literal["training step", "inference"]
    device: str
    #: The project's own arithmetic switches (TF32 among them), on for both.
    precision: Mapping[str, str]
    clock: Literal["CUDA events", "synchronised clock"]
    rounds: int
    steps_per_round: int
    fp32: Spread
    mixed: Spread
    #: Paired FP32 time over mixed time.
    speedup: Spread
    #: Paired FP32 time over FP32 time: two equal runs.
    same: Spread
    #: Rounds left out because the loss scaler skipped an update in them.
    left_out: int
    memory: Memory | None
    #: How many cases were repeated with diagnostics off, and the first output that was not equal bit for bit.
    cases: int
    differs: str | None
    claims: tuple[Claim, ...]


@dataclass(frozen=True, kw_only=True)
class SeedsMeasured(Event):
    """The FP32 stretch under other seeds: other random draws, and the batches in another order.

    The batches of the last quarter keep their place, so that the late loss is taken over the same data.
    """

    seeds: int
    spreads: tuple[SeedSpread, ...]
    seconds: float


# Found cases.


@dataclass(frozen=True, kw_only=True)
class FoundCase:
    """An input worth being a case. `batch` and `sample` say where it lies; None where it was made."""

    id: str
    tag: Literal["edge", "boundary"]
    why: str
    batch: int | None
    sample: int | None
    decision: object = None
    margin: float | None = None
    largest: float | None = None


@dataclass(frozen=True, kw_only=True)
class CasesFound(Event):
    samples: int
    found: tuple[FoundCase, ...]
    #: What could not be looked for, and why.
    remarks: tuple[str, ...]
    path: str | None = None
