"""Run as a program: restores each scenario's checkpoint in this process and goes on training.

Arguments: a session folder, number of steps. Prints one JSON object: by scenario the digest after the restore, the
losses of the steps in hexadecimal, and the digest at the end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from amptui.engine import checkpoint
from amptui.session.folder import SessionFolder
from amptui.session.store import Store
from tests.engine.training_scenarios import SCENARIOS, digest, run


def main() -> None:
    torch.set_num_threads(1)
    folder, steps = SessionFolder.open(Path(sys.argv[1])), int(sys.argv[2])
    said = {}
    with Store.read(folder) as store:
        for record in store.checkpoints():
            state, step = SCENARIOS[record.name]()
            restored = checkpoint.restore(record, state, folder=folder)
            before = digest(state)
            said[record.name] = [before, run(step, steps), digest(state), dict(restored.position)]
    print(json.dumps(said))


if __name__ == "__main__":
    main()
