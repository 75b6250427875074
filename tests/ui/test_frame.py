"""What is painted first is what the screen shows while nothing is known, and needs nothing that knows a session."""

from __future__ import annotations

import subprocess
import sys

import pytest

from amptui.protocol.events import StageName
from amptui.session.state import SessionState
from amptui.ui.around import around
from amptui.ui.frame import first_frame
from amptui.ui.moves import Situation
from amptui.ui.pages import STAGES
from amptui.ui.raster.glyphs import UNICODE


def test_the_first_frame_is_what_a_session_without_events_shows() -> None:
    now = Situation(SessionState(), "project")
    assert first_frame("run") == around(now, UNICODE, explain=False)


@pytest.mark.parametrize("how", ["attach", "open"])
def test_what_is_read_first_says_so(how: str) -> None:
    assert first_frame(how).now == "The session is being read."  # type: ignore[arg-type]


def test_the_stages_are_the_protocol_s_in_its_order() -> None:
    assert StageName.__args__ == STAGES  # type: ignore[attr-defined]


def test_the_first_paint_imports_neither_the_protocol_nor_the_pages() -> None:
    program = "import sys, amptui.ui.app; print(*(name for name in sys.modules if name.startswith('amptui.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "amptui.ui.main_screen" in loaded
    assert not {name for name in loaded if name.startswith(("amptui.protocol", "amptui.report", "amptui.findings"))}
    assert not loaded & {"amptui.session.state", "amptui.ui.desk", "amptui.ui.stages.project"}
