"""Files that the screen writes: which format and which file, asked until there is an answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.text import safe_text
from amptui.ui.dialogs import questions
from amptui.ui.dialogs.question import Question

Format = Literal["html", "md", "json"]
#: The file that found cases are proposed for.
CASES_FILE = "found-cases.pt"


async def written_report(folder: SessionFolder, format: Format, path: Path) -> str:  # noqa: A002
    """Writes the session's report to `path`; why that failed, empty where it did not."""
    from amptui.report.command import write_report  # noqa: PLC0415 - rarely

    try:
        await asyncio.to_thread(write_report, folder, format, path)
    except SessionError as error:
        return safe_text(str(error), 2000)
    return ""


class WritingScreen(Protocol):
    """What writing needs of the screen."""

    def ask(self, question: Question, answered: Callable[[str], None]) -> None:
        """Asks; `answered` is called unless the question is left."""

    @property
    def session_id(self) -> str: ...

    def write_report(self, path: Path, format: Format) -> None:  # noqa: A002
        """Writes the session's report to `path`, and tells whether that was done."""


class Writing:
    """Asks where to write; an existing file is written over only after a further question."""

    def __init__(self, screen: WritingScreen) -> None:
        self._screen = screen

    def report(self) -> None:
        """Asks for format and file, then writes."""

        formats: dict[str, Format] = {"html": "html", "md": "md", "json": "json"}

        def asked(answer: str) -> None:
            chosen = formats[answer]
            proposed = _here() / f"{self._screen.session_id}.{chosen}"
            title = "write the report to this file"
            self._ask_file(title, proposed, lambda path: self._screen.write_report(path, chosen))

        self._screen.ask(questions.report_format(), asked)

    def cases(self, write: Callable[[Path], None]) -> None:
        """Asks for the file of the found cases; `write` is given it."""
        self._ask_file("write the found cases to this file", _here() / CASES_FILE, write)

    def _ask_file(self, title: str, proposed: Path, write: Callable[[Path], None]) -> None:
        def named(text: str) -> None:
            path = questions.to_write(text)
            if os.path.lexists(path):
                self._screen.ask(questions.overwrite(path), lambda answer: decided(path, answer))
            else:
                write(path)

        def decided(path: Path, answer: str) -> None:
            if answer == "overwrite":
                write(path)
            else:
                self._ask_file(title, path, write)

        self._screen.ask(questions.file(title, proposed), named)


def _here() -> Path:
    """The folder that files are proposed in: the working folder, or home where that is gone."""
    try:
        return Path.cwd()
    except OSError:
        return Path("~").expanduser()
