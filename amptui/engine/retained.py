"""Retained cases: all that replays a failing iteration, kept in a file of plain tensors and values."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from amptui.engine.iteration import GuardedRun
from amptui.engine.live import named_parameters
from amptui.engine.nested import tensors_in
from amptui.engine.plain_values import NotPlain, to_plain
from amptui.protocol.events import CaseRetained
from amptui.protocol.facts import UpdateRecord
from amptui.session.durable import published
from amptui.session.folder import SessionFolder

#: Of one update and one outcome, how many iterations are kept; and how many in all.
KEPT_OF_A_KIND = 1
KEPT_IN_ALL = 8


@dataclass(eq=False)
class Retention:
    """Keeps the first iteration of every kind of failure."""

    folder: SessionFolder
    emit: Callable[[Any], object]
    kept: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def keep(self, run: GuardedRun, record: UpdateRecord) -> str | None:
        """Writes the failing iteration of `record` and returns its id, or None where enough of its kind are kept.

        The weights are those of that moment: the guard has withheld the step. Buffers are as they were before it.
        """
        kind = (record.update, record.outcome)
        kept = self.kept.setdefault(kind, [])
        if len(kept) >= KEPT_OF_A_KIND or sum(map(len, self.kept.values())) >= KEPT_IN_ALL:
            return None
        identity = self._unused(f"step-{record.step:06d}-{record.outcome}")
        path, size = write_retained(self.folder.retained, identity, self._content(run, record))
        kept.append(identity)
        self.emit(
            CaseRetained(
                id=identity,
                step=record.step,
                update=record.update,
                case=None,
                outcome=record.outcome,
                path=str(path),
                bytes=size,
            )
        )
        return identity

    def _unused(self, name: str) -> str:
        """`name` with a number that no case of this session has, one of an earlier trial included."""
        numbers = itertools.count(len(self.kept))
        return next(i for i in (f"{name}-{n:02d}" for n in numbers) if not (self.folder.retained / f"{i}.pt").exists())

    def _content(self, run: GuardedRun, record: UpdateRecord) -> dict[str, Any]:
        live = run.live
        states = {
            str(micro): state.as_plain()
            for (step, update, micro), state in run.tape.states.items()
            if step == record.step and update == record.update
        }
        return {
            "amptui": {"format": 1},
            "step": record.step,
            "update": record.update,
            "outcome": record.outcome,
            "scale": record.scale,
            "policy": json.dumps(asdict(run.policy)),
            "parameters": {name: p.detach() for name, p in named_parameters(live.modules).items()},
            "buffers": run.buffers.tensors() if run.buffers is not None else {},
            "batches": [_plain_batch(batch) for batch in live.batches.window(record.step)],
            "rng": states,
        }


def _plain_batch(batch: Any) -> Any:
    """The batch as plain values, or its tensors alone where it holds objects of other kinds."""
    try:
        return to_plain(batch, "batch")
    except NotPlain:
        return {"tensors": [t.detach() for t in tensors_in(batch)]}


def write_retained(folder: Path, identity: str, content: Mapping[str, Any]) -> tuple[Path, int]:
    """Writes `content` as a new file that `torch.load(weights_only=True)` reads, durably; returns path and bytes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{identity}.pt"
    with published(path) as file:
        torch.save(dict(content), file)
    return path, path.stat().st_size
