"""The lines that lead on: whatever the size, what to press is whole."""

from __future__ import annotations

import pytest

from amptui.ui.raster.line import plain, width_of
from amptui.ui.raster.prose import Paragraph, paragraph
from amptui.ui.widgets.guidance import guidance_lines

LONG = "Step 12: this update is skipped and the scale halves, which is usual while it settles; " * 3
PRESS = "c goes on without it, r retries at the new scale, d shows why, F falls back."


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_keys_are_whole_and_the_sentence_is_cut_with_a_sign(width: int) -> None:
    lines = guidance_lines(paragraph(LONG), paragraph(PRESS, "key"), width, 3)
    assert [width_of(line) for line in lines] == [width] * 3
    text = " ".join(" ".join(plain(line) for line in lines).split())
    assert text.endswith(PRESS)
    assert text.startswith("Step 12")
    assert ("…" in text) == (width < 200)


def test_a_short_sentence_is_not_cut() -> None:
    lines = guidance_lines(paragraph("Paused."), paragraph(PRESS), 80, 3)
    assert [plain(line).strip() for line in lines] == ["Paused.", PRESS, ""]


def test_without_keys_the_sentence_has_all_lines() -> None:
    lines = guidance_lines(paragraph(LONG), Paragraph((("", "text"),)), 100, 3)
    assert "…" not in "".join(plain(line) for line in lines)
    assert plain(lines[2]).strip()
