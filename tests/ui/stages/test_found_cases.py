"""Found cases: a table whose words fit, the selected one in full, and the lines that take them over."""

from __future__ import annotations

from amptui.protocol import events as told
from amptui.protocol.measuring import FoundCase
from amptui.session.state import SessionState
from amptui.ui.raster.prose import prose
from amptui.ui.raster.table import column_widths
from amptui.ui.stages.found_cases import COLUMNS, found_table, found_text
from tests.report import measured
from tests.report.stages import opened
from tests.ui.test_moves import FOUND, after

EVERY = (
    ("boundary-1", "boundary"),
    ("largest-activation", "edge"),
    ("longest", "edge"),
    ("shortest", "edge"),
    ("empty", "edge"),
    ("fully-masked", "edge"),
)


def text_of(event: told.CasesFound | None, selected: str | None) -> str:
    return "\n".join("".join(span.text for span in line) for line in prose(found_text(event, selected).paragraphs, 80))


def test_every_kind_of_reason_fits_into_80_cells() -> None:
    found = tuple(
        FoundCase(id=name, tag=tag, why="x" * 90, batch=12, sample=3, margin=0.25, largest=12345.0)  # type: ignore[arg-type]
        for name, tag in EVERY
    )
    table = found_table(after(told.CasesFound(samples=1, found=found, remarks=())))
    widths = column_widths(COLUMNS, 80)
    for row in table.rows:
        assert len(str(row.values[2])) <= widths[2], row
        assert len(str(row.values[0])) <= widths[0]


def test_a_row_has_place_and_margin_and_a_made_one_has_none() -> None:
    rows = found_table(after(FOUND)).rows
    assert rows[0].values == ("boundary-1", "boundary", "near another decision", 32, 2, 0.25)
    assert rows[1].values[3:] == (None, None, None)


def test_the_selected_one_is_told_in_full_with_what_could_not_be_looked_for() -> None:
    said = text_of(FOUND, "boundary-1")
    assert "boundary-1: near. batch 32, sample 2; decides 3 with a margin of 0.25" in said
    assert "! 2 samples are not finite" in said
    assert "made, not from the batches" in text_of(FOUND, "empty")


def test_the_two_lines_stand_there_once_there_is_a_file() -> None:
    assert "torch.load" not in text_of(FOUND, None)
    said = text_of(measured.FOUND, None)
    assert said.startswith("found = torch.load('/tmp/found.pt', weights_only=True)")
    assert "Project(…, cases=[*cases, *(Case(**case) for case in found)])" in said


def test_an_empty_table_says_whether_it_is_still_looked_for() -> None:
    assert found_table(SessionState()).empty == "none was found"
    looking = after(*opened(), told.StageStarted(stage="measure", task="cases"))
    assert "looking" in found_table(looking).empty
    assert text_of(None, None) == ""
