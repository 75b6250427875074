"""Events are recorded before they are told, keep their order, and never wait for who should read them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amptui.engine import outbox as outboxes
from amptui.engine.outbox import Outbox
from amptui.protocol.channel import ChannelClosed, Connection
from amptui.protocol.codec import decode_envelope
from amptui.protocol.events import Goodbye, Progressed, Remarked
from amptui.protocol.greeting import Dropped, Hello, Turned, decode_greeting
from amptui.session.errors import StoreError
from amptui.session.folder import SessionFolder
from amptui.session.history import history
from amptui.session.lock import SessionLock
from amptui.session.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    folder = SessionFolder.create(tmp_path / "session")
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        yield store


def ends() -> tuple[Connection, Connection]:
    one, other = socket.socketpair()
    return Connection(one), Connection(other)


def remark(text: str) -> Remarked:
    return Remarked(code=text, message="")


def progress(n: int, size: int = 10) -> Progressed:
    return Progressed(stage="trial", what="x" * size, done=n, total=n)


def test_a_client_hears_where_it_comes_in_and_all_that_follows(store: Store) -> None:
    outbox = Outbox(store)
    outbox.send(progress(0))
    outbox.send(remark("before"))
    engine, client = ends()
    outbox.attach(engine)
    outbox.send(remark("after"))

    greeting = decode_greeting(client.receive(5) or b"")
    assert isinstance(greeting, Hello)
    assert greeting.history == 1
    assert [envelope.seq for envelope in history(store, up_to=greeting.history)] == [0, 1]
    heard = decode_envelope(client.receive(5) or b"")
    assert (heard.seq, heard.event) == (2, remark("after"))
    outbox.close()


def test_telemetry_before_the_hello_is_in_the_store_already(store: Store) -> None:
    outbox = Outbox(store)
    for n in range(10):
        outbox.send(progress(n))
    engine, _client = ends()
    outbox.attach(engine)

    with Store.read(store.folder) as reader:
        assert len(list(history(reader))) == 10
    outbox.close()


def test_a_durable_event_is_committed_before_anyone_hears_of_it(store: Store) -> None:
    outbox = Outbox(store)
    engine, client = ends()
    outbox.attach(engine)
    client.receive(5)
    for n in range(5):
        outbox.send(remark(str(n)))
        heard = decode_envelope(client.receive(5) or b"")
        with Store.read(store.folder) as reader:
            assert reader.last_seq >= heard.seq
    outbox.close()


def test_what_cannot_be_recorded_is_not_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(store)
    engine, client = ends()
    outbox.attach(engine)
    client.receive(5)

    def full(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "record", full)
    with pytest.raises(StoreError):
        outbox.send(remark("lost"))
    assert client.receive(0.1) is None

    outbox.say_last(Goodbye(why="the disk is full"))
    assert decode_envelope(client.receive(5) or b"").event == Goodbye(why="the disk is full")
    outbox.close()


def test_a_signal_handler_that_raises_while_an_event_is_recorded_costs_that_event_at_most(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, record = Outbox(store), store.record

    def interrupted(seq: int, *arguments: object, **named: object) -> None:
        record(seq, *arguments, **named)  # type: ignore[arg-type]
        raise TimeoutError("from the project's handler")

    outbox.send(remark("before"))
    with monkeypatch.context() as patched:
        patched.setattr(store, "record", interrupted)
        with pytest.raises(TimeoutError):
            outbox.send(progress(1))
    outbox.send(remark("after"))
    outbox.close()
    assert [envelope.event for envelope in history(store)] == [remark("before"), progress(1), remark("after")]


def test_many_threads_keep_one_order(store: Store) -> None:
    outbox = Outbox(store)
    engine, client = ends()
    outbox.attach(engine)
    threads = [
        threading.Thread(target=lambda: [outbox.send(progress(n)) for n in range(100)] and None) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outbox.close()

    client.receive(5)
    assert [decode_envelope(client.receive(5) or b"").seq for _ in range(400)] == list(range(400))


def test_a_client_that_does_not_read_loses_telemetry_with_a_count_and_nothing_else(store: Store) -> None:
    outbox = Outbox(store)
    engine, client = ends()
    outbox.attach(engine)
    start = time.monotonic()
    for n in range(500):
        outbox.send(progress(n, 20_000))
    outbox.send(remark("important"))
    outbox.send(progress(500))
    assert time.monotonic() - start < 5, "nobody waited"

    seen, dropped = [], 0
    while len(seen) + dropped < 502:
        line = client.receive(5)
        assert line is not None
        greeting = decode_greeting(line)
        if isinstance(greeting, Dropped):
            dropped += greeting.events
        elif greeting is None:
            seen.append(decode_envelope(line))
    assert dropped > 300
    assert remark("important") in [envelope.event for envelope in seen]
    assert [envelope.seq for envelope in seen] == sorted(envelope.seq for envelope in seen)
    outbox.close()


def test_a_client_that_is_hopelessly_behind_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "WAITING_BYTES", 2**20)
    gone: list[Connection] = []
    outbox = Outbox(None, on_gone=gone.append)
    engine, client = ends()
    outbox.attach(engine)
    for n in range(60):
        outbox.send(remark(str(n) * 20_000))

    def read_all() -> None:
        while True:
            client.receive(5)

    with pytest.raises(ChannelClosed):
        read_all()
    deadline = time.monotonic() + 5
    while not gone and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone == [engine]
    outbox.send(remark("alone again"))
    outbox.close()


def test_a_client_that_is_turned_out_is_told_by_whom(store: Store) -> None:
    outbox = Outbox(store)
    engine, client = ends()
    outbox.attach(engine)
    assert isinstance(decode_greeting(client.receive(5) or b""), Hello)
    outbox.turn_out(engine, "process 7 took over", 7)
    outbox.send(remark("not for you"))

    assert decode_greeting(client.receive(5) or b"") == Turned(why="process 7 took over", by=7)
    with pytest.raises(ChannelClosed):
        client.receive(5)
    outbox.close()


def test_closing_does_not_wait_for_ever(store: Store) -> None:
    outbox = Outbox(store)
    engine, _client = ends()
    outbox.attach(engine)
    outbox.send(remark("x" * 2**20))
    start = time.monotonic()
    outbox.close(timeout=0.1)

    assert time.monotonic() - start < 3
