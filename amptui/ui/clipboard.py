"""Copying that works where people are: in tmux, over SSH, on a desktop. The text is always also saved as a file.

A terminal does not say whether it took a copy, so a plain success message may lie (the complaint about every tool of
this kind). What was done is told in its own words, together with the path.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from amptui.text import safe_text

#: OSC 52 sequences longer than this are dropped by common terminals.
OSC52_MOST = 74_994
#: A clipboard program that takes longer is not answering.
PATIENCE = 2.0
#: The name of the file in the session's folder.
FILE_NAME = "copied.txt"


@dataclass(frozen=True)
class Copied:
    """What became of a copy: the ways it went, the file it is in, and what went wrong."""

    ways: tuple[str, ...]
    path: Path | None
    problems: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """For the screen: ``copied to tmux and your terminal's clipboard · saved to ~/…/copied.txt``."""
        parts = [f"copied to {' and '.join(self.ways)}"] if self.ways else ["no clipboard took it"]
        if self.path:
            parts.append(f"saved to {_home_short(self.path)}")
        return " · ".join([*parts, *self.problems])

    @property
    def line(self) -> str:
        """For one line, of which the end may be cut: the file first, as nothing else says where it is."""
        places = [*([_home_short(self.path)] if self.path else []), *self.ways]
        said = [f"copied to {', '.join(places)}"] if places else []
        return " · ".join([*said, *([] if self.ways else ["no clipboard took it"]), *self.problems])


async def copy(
    text: str,
    folder: Path,
    *,
    write: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> Copied:
    """Put `text` on the clipboard by the best way there is, and into `folder`/copied.txt.

    `write` sends a sequence to the terminal (the app's driver, so that it does not fall into the middle of a frame).
    Control characters are made visible first: pasted into a shell, they would act. Never raises: what failed is told.
    """
    safe = safe_text(text, limit=10**9, lines=True)
    path, problems = _saved(safe, folder)
    ways: list[str] = []
    sent = False
    for name, command in programs(environ):
        if await _piped(command, safe, environ):
            ways.append(name)
            sent = True
            break
    if not sent:
        sequence = osc52(safe, environ)
        if sequence is None:
            problems.append("too long for the terminal's clipboard")
        else:
            write(sequence)
            ways.append("your terminal's clipboard, if it allows that")
    return Copied(tuple(ways), path, tuple(problems))


def programs(environ: Mapping[str, str]) -> list[tuple[str, Sequence[str]]]:
    """The programs that could take a copy here, best first, each with what it is for people.

    tmux drops OSC 52 by default, but hands its own buffer on (`-w`). A desktop's program is used only where the
    desktop is in front of the user: over SSH it would fill the clipboard of the wrong machine.
    """
    found: list[tuple[str, Sequence[str]]] = []
    if environ.get("TMUX"):
        found.append(("tmux and your terminal's clipboard", ("tmux", "load-buffer", "-w", "-")))
    elif not over_ssh(environ):
        if environ.get("WAYLAND_DISPLAY"):
            found.append(("the clipboard", ("wl-copy",)))
        if environ.get("DISPLAY"):
            found.append(("the clipboard", ("xclip", "-selection", "clipboard")))
            found.append(("the clipboard", ("xsel", "--clipboard", "--input")))
        found.append(("the clipboard", ("pbcopy",)))
    search = environ.get("PATH", os.defpath)
    return [(name, command) for name, command in found if shutil.which(command[0], path=search)]


def over_ssh(environ: Mapping[str, str]) -> bool:
    """Whether this session came in over SSH."""
    return any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"))


def osc52(text: str, environ: Mapping[str, str]) -> str | None:
    """The sequence that asks the terminal to take `text`, wrapped for tmux or screen; None where it is too long."""
    payload = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    sequence = f"\x1b]52;c;{payload}\x07"
    if len(sequence) > OSC52_MOST:
        return None
    if environ.get("TMUX"):
        # Passed through to the outer terminal where `allow-passthrough` is on; every ESC inside is doubled.
        doubled = sequence.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    if environ.get("STY"):
        # screen cuts device control strings at 768 bytes.
        chunks = [sequence[start : start + 250] for start in range(0, len(sequence), 250)]
        return "".join(f"\x1bP{chunk}\x1b\\" for chunk in chunks)
    return sequence


async def _piped(command: Sequence[str], text: str, environ: Mapping[str, str]) -> bool:
    """Whether `command` took `text` on its standard input in time."""
    nowhere = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=nowhere, stderr=nowhere, env=dict(environ)
        )
    except OSError:
        return False
    try:
        # wl-copy and xclip stay behind to serve the clipboard; their first process ends.
        await asyncio.wait_for(process.communicate(text.encode("utf-8", "replace")), PATIENCE)
    except (asyncio.TimeoutError, OSError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return False
    return process.returncode == 0


def _saved(text: str, folder: Path) -> tuple[Path | None, list[str]]:
    """Write the file for its owner alone, whole or not at all."""
    path = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".copied-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
                file.write(text if text.endswith("\n") else text + "\n")
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        return None, [f"not saved: {error.strerror or error} ({_home_short(path)})"]
    return path, []


def _home_short(path: Path) -> str:
    text = safe_text(path)
    home = str(Path.home())
    return f"~{text[len(home) :]}" if home != "/" and text.startswith(home + "/") else text
