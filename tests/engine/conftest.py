from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from amptui import Project
from amptui.protocol.events import Refused
from tests.engine.conducted import Conducted, opened_by

torch.set_num_threads(1)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Project], Conducted]:
    def open_(given: Project) -> Conducted:
        done = opened_by(given, tmp_path, monkeypatch)
        assert not done.all(Refused), done.all(Refused)
        return done

    return open_
