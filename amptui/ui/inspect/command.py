"""Opening the screen: the reading begins first, so that it is done by the time there is something to paint on."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from amptui.inspection.command import EXIT_UNREADABLE
from amptui.inspection.result import Inspection
from amptui.spec.error import SpecError
from amptui.text import safe_text
from amptui.ui.inspect.reading import CheckpointReader
from amptui.ui.terminal import refusal, this_terminal

if TYPE_CHECKING:
    from amptui.ui.screen_settings import ScreenSettings


def has_screen(paths: Sequence[str]) -> bool:
    """Whether there is a terminal to draw on, and something at every path to show."""
    terminal = this_terminal()
    return (
        refusal(terminal) is None
        and sys.__stdout__ is not None
        and sys.__stdout__.isatty()
        and all(os.path.lexists(path) for path in paths)
    )


def open_screen(paths: Sequence[str], options: ScreenSettings, *, values: bool = False) -> int:
    """Shows one checkpoint, or two and what happened between them; the exit code of `amptui inspect`.

    Raises SpecError for a mistake in the configuration file.
    """
    readers = [CheckpointReader(path) for path in paths]
    for reader in readers:
        reader.start(values=values)
    try:
        return _shown(readers, options)
    finally:
        for reader in readers:
            reader.stop()


def _shown(readers: Sequence[CheckpointReader], options: ScreenSettings) -> int:
    """Runs the screen to its end; the terminal is restored whatever ends it."""
    terminal = this_terminal()
    os.environ["TEXTUAL_COLOR_SYSTEM"] = terminal.colour_system
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    from amptui.ui.inspect.app import InspectApp, InspectStart  # noqa: PLC0415 - reads the variables above
    from amptui.ui.inspect.keys import INSPECT_KEYS  # noqa: PLC0415
    from amptui.ui.keys import rebind_own  # noqa: PLC0415
    from amptui.ui.screen_settings import config_path, read_screen_settings  # noqa: PLC0415
    from amptui.ui.terminal import TerminalGuard  # noqa: PLC0415
    from amptui.ui.theme import Look, theme_for  # noqa: PLC0415

    chosen = read_screen_settings().overridden_by(options)
    try:
        theme, keys = theme_for(os.environ, chosen.theme), rebind_own(INSPECT_KEYS, chosen.keys)
    except ValueError as error:
        raise SpecError("settings", str(error), where=str(config_path())) from error
    look = Look(theme=theme, ascii=bool(chosen.ascii) or terminal.wants_ascii)
    if terminal.colours == "none":
        look = replace(look, theme="plain")
    start = InspectStart(
        readers=readers,
        look=look,
        keys=keys,
        paints=chosen.paints or terminal.paints_per_second,
    )
    with TerminalGuard() as guard:
        app = InspectApp(start, guard)
        code = app.run(mouse=chosen.mouse is not False)
    if guard.exit_code:
        return guard.exit_code
    answer = app.answer
    if answer is None:
        sys.stderr.write("amptui: left before anything was read\n")
        return EXIT_UNREADABLE
    sys.stderr.writelines(f"{line}\n" for line in map(_last_words, answer.inspections))
    return code or app.return_code or answer.exit_code


def _last_words(inspection: Inspection) -> str:
    """What stays on the terminal when the screen is gone: `step_9000.pt: 1 fault, 2 notices`."""
    from amptui.ui.inspect.words import counted  # noqa: PLC0415 - not before the reading has begun

    faults = sum(finding.severity == "fault" for finding in inspection.findings)
    notices = len(inspection.findings) - faults
    told = [counted(faults, "fault") if faults else "no fault", *([counted(notices, "notice")] if notices else [])]
    return f"{safe_text(inspection.path, 4000)}: {', '.join(told)}"
