"""What one iteration's event costs the engine: 200 layers' norms, encoded with its envelope. Budget: 40 µs."""

from __future__ import annotations

import json
import random
import statistics
import time

from amptui.protocol.codec import Floats, decode_envelope, encode, encode_envelope
from amptui.protocol.events import IterationDone
from amptui.protocol.facts import IterationRecord, UpdateRecord

BUDGET = 40.0
LAYERS = 200


def iteration(layers: int) -> IterationDone:
    draw = random.Random(0)
    update = UpdateRecord(
        step=41,
        update="main",
        outcome="ok",
        loss=0.431,
        losses=Floats.of([0.431]),
        shown={"cross_entropy": 0.4},
        norms=Floats.of([draw.random() for _ in range(layers)]),
        norm=float("inf"),
        clipped_to=1.0,
        found_inf=False,
        scale=65536.0,
        applied=True,
        skipped=False,
        withheld=False,
        zero_gradient=False,
        learning_rate=1e-3,
        seconds=0.02,
    )
    record = IterationRecord(
        step=41,
        updates=(update,),
        scale_before=65536.0,
        scale_after=65536.0,
        growth_tracker=41,
        growth_interval=2000,
        seconds=0.02,
        memory=412 << 20,
    )
    return IterationDone(run="trial", record=record)


def microseconds(call: object, *, rounds: int = 30, times: int = 300) -> float:
    """Median over rounds of the mean time of one call."""
    assert callable(call)
    means = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(times):
            call()
        means.append((time.perf_counter() - start) / times * 1e6)
    return statistics.median(means)


def main() -> None:
    event = iteration(LAYERS)
    norms = list(event.record.updates[0].norms)
    line = encode_envelope(41, 1700000000.0, encode(event))
    assert decode_envelope(line).event == event

    encoded = microseconds(lambda: encode_envelope(41, 1700000000.0, encode(event)))
    packed = microseconds(lambda: Floats.of(norms))
    plain = microseconds(lambda: json.dumps(norms))
    decoded = microseconds(lambda: decode_envelope(line))
    print(
        f"event of {LAYERS} layers, {len(line)} bytes: encode {encoded:.1f} µs of {BUDGET:.0f}; "
        f"packing the norms {packed:.1f} µs; decode {decoded:.1f} µs"
    )
    print(f"ratio to writing the {LAYERS} norms alone as JSON numbers: {encoded / plain:.2f}")


if __name__ == "__main__":
    main()
