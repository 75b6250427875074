"""The commands that need a screen: run, attach and open. Each returns the program's exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path

from amptui.session.folder import SessionFolder
from amptui.session.paths import create_session, find_session, name_of
from amptui.spec.run_settings import RunSettings
from amptui.text import shell_word
from amptui.ui.screen_settings import ScreenSettings, read_screen_settings
from amptui.ui.start import Start
from amptui.ui.terminal import Terminal, refusal, this_terminal

FAILED = 2


def run(settings: RunSettings, options: ScreenSettings, *, spec: str) -> int:
    """A new session of the project that `settings` name; `spec` is what they were read from. May raise SessionError."""
    chosen = _chosen(options)
    terminal = _terminal(f"Without one, with the same options: amptui check {shell_word(spec)}")
    if terminal is None:
        return FAILED
    folder = create_session(settings.title, Path(settings.session) if settings.session else None)
    return _show("run", folder, terminal, chosen, settings=settings)


def attach(session: str, options: ScreenSettings, *, take_over: bool = False) -> int:
    """The engine of `session` that was left waiting. Raises SessionError where there is no such session."""
    chosen, folder = _chosen(options), find_session(session, waiting=True)
    terminal = _terminal(
        f"The session is left as it is. What it has recorded: amptui report {shell_word(name_of(folder))}"
    )
    return FAILED if terminal is None else _show("attach", folder, terminal, chosen, take_over=take_over)


def open_session(session: str, options: ScreenSettings) -> int:
    """A recorded session, only looked at. Raises SessionError where there is no such session."""
    chosen, folder = _chosen(options), find_session(session)
    terminal = _terminal(f"Without one: amptui report {shell_word(name_of(folder))}")
    return FAILED if terminal is None else _show("open", folder, terminal, chosen)


def _chosen(options: ScreenSettings) -> ScreenSettings:
    """The configuration file's settings under those of the command line. Raises SpecError before anything is made."""
    return read_screen_settings().overridden_by(options)


def _terminal(instead: str) -> Terminal | None:
    """This terminal; None, with the reason and what to do instead told, where no screen can be drawn on it."""
    terminal = this_terminal()
    why = refusal(terminal, instead)
    if why is None:
        return terminal
    _say(f"amptui: {why}")
    return None


def _show(
    how: str,
    folder: SessionFolder,
    terminal: Terminal,
    chosen: ScreenSettings,
    *,
    settings: RunSettings | None = None,
    take_over: bool = False,
) -> int:
    """Runs the screen to its end; the terminal is restored whatever ends it."""
    os.environ["TEXTUAL_COLOR_SYSTEM"] = terminal.colour_system
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    from amptui.ui.app import AmptuiApp  # noqa: PLC0415 - reads the variables above when it is imported
    from amptui.ui.terminal import TerminalGuard  # noqa: PLC0415
    from amptui.ui.theme import Look, theme_for  # noqa: PLC0415

    look = Look(theme=theme_for(os.environ, chosen.theme), ascii=bool(chosen.ascii) or terminal.wants_ascii)
    if terminal.colours == "none":
        look = replace(look, theme="plain")
    start = Start(
        how=how,  # type: ignore[arg-type]
        folder=folder,
        settings=settings,
        take_over=take_over,
        look=look,
        keys=chosen.bindings(),
        paints=chosen.paints or terminal.paints_per_second,
        mouse=chosen.mouse is not False,
    )
    with TerminalGuard() as guard:
        app = AmptuiApp(start, guard)
        code = app.run(mouse=start.mouse)
    if app.last_words:
        _say(app.last_words)
    elif how != "open":
        _say(f"Look at it again: amptui open {shell_word(name_of(folder))}")
    return guard.exit_code or code or app.return_code or 0


def _say(text: str) -> None:
    """On standard error; nothing where the terminal is gone."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
