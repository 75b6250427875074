"""Run as a program: writes checkpoint after checkpoint into the session given, until it is killed.

Says "ready" before the first, and the name of each once it is recorded.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from amptui.engine import checkpoint
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.store import Store
from tests.engine.training_scenarios import SCENARIOS, run


def main(limit: int = 1000) -> None:
    torch.set_num_threads(1)
    folder = SessionFolder.open(Path(sys.argv[1]))
    state, step = SCENARIOS["adamw"]()
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        run(step, 1)
        print("ready", flush=True)
        for index in range(limit):
            name = f"step-{index}"
            store.add_checkpoint(checkpoint.write(folder, name, state, {"name": name}))
            print(name, flush=True)
            store.record(index, 0.0, "written", "{}", durable=index % 2 == 0)
            run(step, 1)


if __name__ == "__main__":
    main(int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
