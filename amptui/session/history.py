"""The events of a session as its store has them."""

from __future__ import annotations

from collections.abc import Iterator

from amptui.protocol.codec import Envelope, ProtocolError, UnknownKind, decode
from amptui.protocol.events import Event
from amptui.session.errors import StoreDamaged
from amptui.session.store_reader import StoreReader
from amptui.text import safe_text


def history(store: StoreReader, *, after: int = -1, up_to: int | None = None) -> Iterator[Envelope]:
    """Events with a sequence number above `after`, up to `up_to` (None: all), in order.

    Kinds that a newer amptui recorded are passed over. Raises StoreDamaged where an event cannot be understood.
    """
    for stored in store.events(after):
        if up_to is not None and stored.seq > up_to:
            return
        try:
            event = decode(stored.body)
        except UnknownKind:
            continue
        except ProtocolError as error:
            raise StoreDamaged(f"event {stored.seq} cannot be understood: {safe_text(error)}") from error
        if isinstance(event, Event):
            yield Envelope(seq=stored.seq, time=stored.time, event=event)
