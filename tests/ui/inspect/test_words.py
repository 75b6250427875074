"""The card, the counts and the progress: the printed page's words, weightiest first, no string of a file raw."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from amptui.inspection.reading import inspect_path
from amptui.inspection.result import Inspection, ScalerState, TensorFact
from amptui.ui.inspect.reading import Reading
from amptui.ui.inspect.words import card, judged, progress, short_names, tensor_words
from amptui.ui.raster.glyphs import UNICODE
from amptui.ui.raster.line import Line, plain
from amptui.ui.raster.prose import prose
from tests.inspection.writer import T, adam, save, scaler, weights


def lines(inspection: Inspection, *, roomy: bool = False, width: int = 80) -> list[str]:
    return [plain(line).rstrip().replace("\u00a0", " ") for line in drawn(inspection, roomy=roomy, width=width)]


def drawn(inspection: Inspection, *, roomy: bool = False, width: int = 80) -> tuple[Line, ...]:
    return prose(card(inspection, UNICODE, roomy=roomy), width)


@pytest.fixture
def whole(tmp_path: Path) -> Inspection:
    root = {"model": weights(), "optimizer": adam(1000), "scaler": scaler(512.0, tracker=37), "step": 1003}
    return inspect_path(str(save(tmp_path / "x.pt", root)))


def test_the_card_begins_with_the_scale_and_what_a_resume_lacks(whole: Inspection) -> None:
    card_lines = lines(whole)
    assert card_lines[0] == " loss scale    512 = 2^9 · grows after 1,963 more clean updates (37 of 2,000)"
    assert card_lines[1].startswith(" exact resume  ✓ model  ✓ optimizer  ✓ scaler")
    assert "✗ rng" in card_lines[1]
    assert any(line.startswith(" steps         loop 1,003 · optimizer 1,000 · 3 skipped") for line in card_lines)


def test_with_room_it_tells_places_factors_and_how_far_growth_is(whole: Inspection) -> None:
    card_lines = lines(replace(whole, scalers=(replace(whole.scalers[0], growth_tracker=500),)), roomy=True)
    assert "×2 / ×0.5" in " ".join(card_lines)
    assert any("━━━━━━┄" in line and line.endswith("25 % of the way") for line in card_lines)
    assert any(line.strip() == "✓ optimizer optimizer" for line in card_lines)


def test_no_line_begins_with_a_separator_at_any_width(whole: Inspection) -> None:
    for width in range(30, 100):
        assert not [line for line in lines(whole, width=width) if line.strip().startswith("·")]


@pytest.mark.parametrize("scale", [0.0, math.inf, -1.0, math.nan])
def test_a_scale_that_no_scaler_can_use_is_told_as_bad(scale: float) -> None:
    inspection = Inspection(path="x", scalers=(ScalerState(path="scaler", kind="GradScaler", scale=scale),))
    assert [role for text, role in drawn(inspection)[0] if f"{scale:g}" in text] == ["bad"]


def test_findings_are_counted_with_a_mark(whole: Inspection) -> None:
    assert "".join(text for text, _ in judged(whole, UNICODE)).startswith("✓ no fault · ")
    assert judged(Inspection(path="x", readable=False), UNICODE)[0] == ("✗ not readable", "bad")


def test_progress_is_told_only_while_something_is_read(whole: Inspection) -> None:
    assert progress(Reading(path="x", inspection=whole), UNICODE) == []
    assert progress(Reading(path="x", busy=True), UNICODE) == [("reading", "dim")]
    words = progress(Reading(path="x", inspection=whole, busy=True, done=5 * 10**8, total=10**9), UNICODE)
    assert "".join(text for text, _ in words) == "values 500 MB of 1.0 GB ━━━━━━┄┄┄┄┄┄  50 %"


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a/last.pt"], ["last.pt"]),
        (["runs/step_1.pt", "runs/step_2.pt"], ["step_1.pt", "step_2.pt"]),
        (["runs/a/last.pt", "runs/b/last.pt"], ["a/last.pt", "b/last.pt"]),
        (["same.pt", "same.pt"], ["same.pt", "same.pt"]),
        (["\x1b[2J.pt"], ["\\x1b[2J.pt"]),
    ],
)
def test_names_are_as_short_as_tells_them_apart(paths: list[str], names: list[str]) -> None:
    assert short_names(paths) == names


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"nonfinite": None}, "values not read"),
        ({"nonfinite": 0, "zero": False}, "all finite"),
        ({"nonfinite": 0, "zero": True}, "all zero"),
        ({"nonfinite": 3, "minus_infinite": 1}, "3 of 64 not finite, 1 of these -inf"),
    ],
)
def test_a_tensor_is_told_by_its_values(known: dict[str, int], said: str) -> None:
    tensor = TensorFact(path="w", dtype="float32", shape=(64,), role="parameters", elements=64, **known)  # type: ignore[arg-type]
    assert tensor_words(tensor, 1, values_read=known["nonfinite"] is not None)[0] == said


def test_values_that_were_not_read_come_with_the_key_that_reads_them(tmp_path: Path) -> None:
    unread = replace(inspect_path(str(save(tmp_path / "x.pt", {"w": T()}))), values_read=False)
    assert any("not read: v reads them" in line for line in lines(unread))
