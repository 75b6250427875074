"""Whether a session that is opened again is still about the same thing: nothing is compared silently with another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from amptui.protocol.events import Remarked
from amptui.protocol.facts import Digests
from amptui.session.store import Store

_KEY = "digests"


def noted_changes(store: Store, now: Digests) -> tuple[Remarked, ...]:
    """Writes `now` down at the first opening; at a later one, says what is no longer what it was."""
    recorded = store.meta().get(_KEY)
    if recorded is None:
        store.put_meta(_KEY, json.dumps(asdict(now), sort_keys=True))
        return ()
    return tuple(_changes(json.loads(recorded), asdict(now)))


def _changes(before: dict[str, object], now: dict[str, object]) -> Iterator[Remarked]:
    """One remark for each part that is another; the weights are the checkpoint's by then, so they can only agree."""
    for part, what in (("weights", "weights and buffers"), ("cases", "the cases"), ("batches", "the training batches")):
        if before.get(part) != now[part]:
            yield Remarked(
                code=f"{part}-changed",
                message=f"{what} are not those that this session began with",
                advice="what was measured before cannot be compared with what comes now: the baseline is run anew",
            )
    old, new = before.get("sources"), now["sources"]
    if isinstance(old, dict) and isinstance(new, dict):
        for path in sorted(old.keys() | new.keys()):
            if old.get(path) != new.get(path):
                verb = "is new" if path not in old else "is gone" if path not in new else "has changed"
                yield Remarked(
                    code="source-changed",
                    message=f"a source file {verb} since this session began",
                    where=path,
                    advice="the baseline is run anew with the code as it is now",
                )
