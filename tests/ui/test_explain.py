"""The explanation pane teaches on every page, also behind the verdict."""

from __future__ import annotations

import pytest

from amptui.ui.explain import explanation
from amptui.ui.moves import Situation
from amptui.ui.pages import STAGES, Page
from tests.ui.test_moves import ACCEPTED

TEACHES: dict[Page, tuple[str, ...]] = {
    "measure": ("Only after acceptance", "take turns in random order", "A spread is", "Other seeds", "intervention"),
    "report": ("claims no more than what was run", "What was not run is listed", "plain PyTorch"),
    "diagnosis": ("origin", "run again", "reproduced bit for bit", "other bits", "not reproduced", "to do"),
    "cases": ("boundary", "edge", "nothing is judged here"),
}


@pytest.mark.parametrize("page", [*STAGES, "cases", "diagnosis"])
def test_every_stage_has_its_reasons(page: Page) -> None:
    title, paragraphs = explanation(Situation(ACCEPTED, page))
    assert title
    assert len(paragraphs) >= 2
    text = " ".join(paragraphs)
    assert all(part in text for part in TEACHES.get(page, ()))
