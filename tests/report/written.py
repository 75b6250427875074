"""Recorded sessions for the report's tests: from events written by hand, with whatever one wants in their texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amptui.findings.finding import Finding
from amptui.findings.foreseen import DtypeForecast, PlaceForecast
from amptui.findings.gain import Claim, Memory, SeedSpread, Spread
from amptui.project import Policy
from amptui.protocol import events as told
from amptui.protocol.codec import Envelope, Floats
from amptui.protocol.events import Event
from amptui.protocol.facts import IterationRecord, UpdateRecord
from amptui.protocol.measuring import ModulePrecision
from amptui.report.recorded import Recorded, collect
from tests.report.sessions import accepted, rejected
from tests.report.stages import record


def recorded(events: Sequence[object], *, session: str = "20261129-160455-tiny-3fa9") -> Recorded:
    """The session of `events`; an engine's death is no event and is in no store."""
    kept = [event for event in events if isinstance(event, Event)]
    envelopes = [Envelope(seq=n, time=1_796_000_000.0 + n, event=event) for n, event in enumerate(kept, 1)]
    return collect(envelopes, session=session, path=f"/s/{session}")


def step(number: int, *, run: Any = "trial", scale: float = 1.0, updates: Sequence[Mapping[str, Any]]) -> Event:
    """One iteration; each update is given by what differs from an applied one."""
    records = tuple(_update(number, scale, dict(changed)) for changed in updates)
    return told.IterationDone(
        run=run,
        record=IterationRecord(
            step=number,
            updates=records,
            scale_before=scale,
            scale_after=scale,
            growth_tracker=0,
            growth_interval=2000 if scale != 1.0 else 0,
            seconds=0.01,
            memory=1,
        ),
    )


def _update(number: int, scale: float, changed: dict[str, Any]) -> UpdateRecord:
    made = record(number, changed.pop("outcome", "ok"), scale)
    return dataclasses.replace(made, norms=Floats.of([changed.get("norm", 1.0)]), **changed)


def measured() -> tuple[Event, ...]:
    """What `--measure` adds to a session."""
    spread = Spread(low=0.9, median=1.0, high=1.1, count=7)
    return (
        told.Measured(
            trial=1,
            policy=Policy(),
            what="training step",
            device="cpu",
            precision={"float32 matmul": "high"},
            clock="synchronised clock",
            rounds=7,
            steps_per_round=8,
            fp32=spread,
            mixed=spread,
            speedup=Spread(low=1.4, median=1.5, high=1.6, count=7),
            same=spread,
            left_out=1,
            memory=Memory(kind="resident", fp32=400 << 20, fp32_again=401 << 20, mixed=300 << 20),
            cases=4,
            differs=None,
            claims=(
                Claim(subject="time", direction="better", words="1.50 times as fast as FP32", figure=1.5),
                Claim(subject="memory", direction="none", words="no difference beyond the noise"),
            ),
        ),
        told.SeedsMeasured(
            seeds=2,
            spreads=(SeedSpread(what="quality", subject="quality", baseline=0.95, others=(0.94, 0.96)),),
            seconds=3.0,
        ),
    )


def foretold() -> tuple[Event, ...]:
    """The forecast and the map of precision."""
    place = PlaceForecast(
        phase="forward",
        module="blocks.0",
        op="mul",
        line="net.py:3",
        dtype="float16",
        results=9,
        largest=1e5,
        headroom=0.65,
        lost=0.0,
    )
    fits = DtypeForecast(dtype="float16", overflows=(place, place), places=(place,), initial_scale=1024.0)
    fails = DtypeForecast(dtype="bfloat16", failed="no kernel", failed_at="net.py:9")
    module = ModulePrecision(path="blocks.0", ops={"float16": 3}, casts=2, cast_bytes=64, own_casts=0)
    return (
        told.ForecastMade(windows=2, iterations=2, cases=4, dtypes=(fits, fails), seconds=0.1),
        told.PrecisionMapped(
            trial=1,
            dtype="float16",
            modules=(module,),
            ops={"float16": 3},
            casts=2,
            cast_bytes=64,
            own_casts=0,
            cast_seconds=None,
            words="3 of 3 ops ran in half.",
        ),
    )


def everything() -> tuple[Event, ...]:
    """A session in which every section of a report has something to say."""
    late = (
        told.Intervened(what="retried", step=4),
        told.Remarked(code="late", message="a remark", where="a.py:1", advice="an advice"),
        told.FellBack(checkpoint="fp32", verified=9, proven=False),
        told.CaseReplayed(
            id="kept-0", step=0, update="main", outcome="same", replayed="bit for bit", findings=(), variations=()
        ),
    )
    return (*accepted()[:-1], *late, *foretold(), *measured())


def with_texts(events: Sequence[object], change: Callable[[str], str]) -> tuple[object, ...]:
    """`events` with every foreign text changed: all strings but those of a fixed vocabulary."""
    return tuple(_changed(event, change) for event in events)


#: Fields whose strings amptui chooses among.
_OWN = {
    *("stage", "phase", "kind", "severity", "outcome", "run", "stream", "code", "criterion", "verdict", "dtype"),
    *("scaler", "buffers", "reduce", "tie", "under", "tag", "clock", "subject", "direction", "device", "why"),
}


def _changed(value: Any, change: Callable[[str], str], field: str = "") -> Any:
    if isinstance(value, str):
        return value if field in _OWN or value in ("atol", "rtol") else change(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _changed(getattr(value, f.name), change, f.name) for f in dataclasses.fields(value) if f.init}
        if isinstance(value, Finding):
            fields["facts"] = {}
        return type(value)(**fields)
    if isinstance(value, Floats):
        return value
    if isinstance(value, Mapping):
        return {_changed(k, change): _changed(v, change) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_changed(item, change, field) for item in value)
    return value


def all_told() -> dict[str, tuple[object, ...]]:
    return {"everything": everything(), "rejected": tuple(rejected())}
