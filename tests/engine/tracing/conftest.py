"""Expected lines are computed from the test's own source: the line that ends in `# <- name`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

_MARK = re.compile(r"# <- (\S+)\s*$")


@pytest.fixture(autouse=True)
def _one_thread_and_one_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def line_at(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """`file:line` of the one line in the test's module that carries this mark."""
    path = Path(str(request.path))

    def find(name: str) -> str:
        lines = [i for i, text in enumerate(path.read_text().splitlines(), 1) if _marks(text, name)]
        assert len(lines) == 1, f"{path.name} has {len(lines)} lines marked {name!r}"
        return f"{path}:{lines[0]}"

    return find


def _marks(text: str, name: str) -> bool:
    found = _MARK.search(text)
    return found is not None and found.group(1) == name
