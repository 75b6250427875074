"""What one iteration's event costs the engine: 200 layers' norms, encoded with its envelope. Budget: 40 µs."""

from __future__ import annotations

import json
import random
import socket
import statistics
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from amptui.engine.outbox import Outbox
from amptui.protocol.channel import ChannelError, Connection
from amptui.protocol.codec import Floats, decode_envelope, encode, encode_envelope
from amptui.protocol.events import IterationDone
from amptui.protocol.facts import IterationRecord, UpdateRecord
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.store import Store

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


def sending(event: IterationDone) -> float:
    """Processor time of the calling thread for one `Outbox.send`, recorded and with a client that reads, in µs."""
    with tempfile.TemporaryDirectory() as place:
        folder = SessionFolder.create(Path(place) / "session")
        with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
            outbox = Outbox(store)
            engine, client = (Connection(end) for end in socket.socketpair())
            reader = threading.Thread(target=_read_all, args=(client,), daemon=True)
            reader.start()
            outbox.attach(engine)
            spent = []
            for _ in range(200):
                start = time.thread_time_ns()
                for _ in range(10):
                    outbox.send(event)
                spent.append((time.thread_time_ns() - start) / 10 / 1e3)
                time.sleep(0.005)  # as a training loop would, so that the other threads have their turn
            outbox.close()
    return statistics.median(spent)


def _read_all(client: Connection) -> None:
    with suppress(ChannelError):
        while client.receive() is not None:
            pass


def main() -> None:
    event = iteration(LAYERS)
    norms = list(event.record.updates[0].norms)
    line = encode_envelope(41, 1700000000.0, encode(event))
    assert decode_envelope(line).event == event

    encoded = microseconds(lambda: encode_envelope(41, 1700000000.0, encode(event)))
    packed = microseconds(lambda: Floats.of(norms))
    plain = microseconds(lambda: json.dumps(norms))
    decoded = microseconds(lambda: decode_envelope(line))
    sent = sending(event)
    print(f"event of {LAYERS} layers, {len(line)} bytes (budget {BUDGET:.0f} µs of the engine's time):")
    print(f"  encoded with its envelope {encoded:.1f} µs; numbered, recorded and queued for the client {sent:.1f} µs")
    print(f"  packing the norms {packed:.1f} µs; decoding by the client {decoded:.1f} µs")
    print(f"  ratio of encoding to writing the {LAYERS} norms alone as JSON numbers: {encoded / plain:.2f}")


if __name__ == "__main__":
    main()
