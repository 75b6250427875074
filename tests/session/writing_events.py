"""Run as a program: records events into the session given until it is killed, and says which ones are durable."""

from __future__ import annotations

import sys
from pathlib import Path

from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.manifest import CheckpointEntry, CheckpointRecord
from amptui.session.store import Store


def main(limit: int) -> None:
    folder = SessionFolder.open(Path(sys.argv[1]))
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        print("ready", flush=True)
        for seq in range(limit):
            durable = seq % 3 == 2
            store.record(seq, float(seq), "event", "{}" * (seq % 50), durable=durable)
            if seq % 10 == 9:
                entry = CheckpointEntry("archive/data/0", 0, 4, "aa")
                store.flush()
                store.add_checkpoint(CheckpointRecord(f"c{seq}", f"checkpoints/c{seq}.pt", 4, "aa", (entry,), 0.0))
            if durable or seq % 10 == 9:
                print(seq, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
