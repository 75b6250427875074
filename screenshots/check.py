"""A picture of `amptui check`: runs it on the digits sample and keeps the last stages of its account.

python screenshots/check.py
"""

# ruff: noqa: T201 - a script that says what it drew

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from rich.console import Console

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from amptui.protocol.events import Event, StageStarted  # noqa: E402
from amptui.report.account import Account  # noqa: E402
from amptui.report.result import exit_code  # noqa: E402
from amptui.session.checking import check  # noqa: E402
from amptui.session.death import EngineDeath  # noqa: E402
from amptui.session.folder import SessionFolder  # noqa: E402
from amptui.session.state import SessionState  # noqa: E402
from amptui.spec.run_settings import RunSettings  # noqa: E402
from amptui.spec.settings import settings_for  # noqa: E402

SPEC = "sample_projects/digits/amptui.yaml"
PICTURE = HERE / "check-digits.svg"
WIDTH = 92


def main() -> int:
    """Draws the picture; the exit code is that of the check."""
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory() as home:
        folder = SessionFolder.create(Path(home) / "20260101-120000-digits-1a2b")
        account = Account(console, spec=SPEC, session=folder.session_id)

        def tell(event: Event | EngineDeath, state: SessionState) -> None:
            if isinstance(event, StageStarted) and event.stage == "trial":
                console.export_text(clear=True)  # project, baseline and criteria would make it three times as long
            if isinstance(event, EngineDeath):
                account.on_death(event, state)
            else:
                account.on_event(event, state)

        settings = settings_for(SPEC, RunSettings(), folder=HERE.parent)
        state = check(settings, folder, on_event=tell)
        account.finish(state, exit_code(state))
    console.save_svg(str(PICTURE), title=f"amptui check {SPEC}")
    print(PICTURE)
    return exit_code(state)


if __name__ == "__main__":
    sys.exit(main())
