"""The commands that open a screen: run, attach, open."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from amptui.commands.options import run_settings, say
from amptui.project import ProjectError
from amptui.session.errors import SessionError
from amptui.spec.error import SpecError
from amptui.ui import commands
from amptui.ui.screen_settings import ScreenSettings


def run(given: argparse.Namespace) -> int:
    return on_screen(given, lambda screen: commands.run(run_settings(given), screen, spec=given.spec))


def attach(given: argparse.Namespace) -> int:
    return on_screen(given, lambda screen: commands.attach(given.session, screen, take_over=given.take_over))


def open_recorded(given: argparse.Namespace) -> int:
    return on_screen(given, lambda screen: commands.open_session(given.session, screen))


def on_screen(given: argparse.Namespace, shown: Callable[[ScreenSettings], int]) -> int:
    """`shown` with the screen's options; one message for what keeps it from starting."""
    mouse = False if given.no_mouse else None
    try:
        return shown(ScreenSettings(theme=given.theme, ascii=given.ascii, mouse=mouse, paints=given.paints))
    except (SpecError, ProjectError, SessionError) as error:
        return say(error)
