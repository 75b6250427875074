"""Projects that only look alarming: each is a function of the dtype, put into a table, and none may raise an alarm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from amptui import Project, Scaler
from tests.engine.diagnosis.told import Batch, ask, batches, brief

Make = Callable[[str], Project]


class Healthy(dict[str, Make]):
    """Projects by name; calling it with a function that makes one puts it in."""

    def __call__(self, make: Make) -> Make:
        self[make.__name__] = make
        return make

    def check(self, name: str, dtype: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No fault is told, and the verdict is accept."""
        answer = ask(self[name](dtype), folder, monkeypatch)
        told = "\n".join(map(brief, answer.findings))
        assert not answer.faults, told
        assert answer.reached.verdict == "accept", f"{answer.reached.words}\n{told}"


def long() -> list[Batch]:
    """Enough batches for a default scale to settle and most updates to be applied."""
    return batches(16)


def default_scaler(dtype: str) -> Scaler | None:
    return Scaler() if dtype == "float16" else None
