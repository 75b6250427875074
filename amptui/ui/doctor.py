"""`amptui doctor`: what this terminal, the project's torch and its device can do, what will not work, and why."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from amptui.session.launch import NOT_INHERITED, LaunchError, interpreter
from amptui.session.paths import sessions_home
from amptui.text import safe_text
from amptui.ui.terminal import Terminal, refusal, this_terminal, too_small

OLDEST_TORCH = (2, 10)
_PATIENCE_S = 60
#: Run by the project's interpreter; prints one JSON object.
_PROBE = """
import json, sys, platform
said = {"python": platform.python_version(), "torch": None, "error": None, "devices": []}
try:
    import torch
    said["torch"] = torch.__version__
    said["cuda"] = torch.version.cuda
    if torch.cuda.is_available():
        for n in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(n)
            said["devices"].append([torch.cuda.get_device_name(n), major, minor])
    said["threads"] = torch.get_num_threads()
except Exception as error:
    said["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


@dataclass(frozen=True)
class Seen:
    """One thing that was looked at. `bad` keeps amptui from working, `warn` takes something away."""

    what: str
    found: str
    state: Literal["ok", "warn", "bad"] = "ok"
    mend: str = ""


def examination(python: str) -> tuple[list[str], bool]:
    """The lines to print, and whether nothing is bad."""
    seen = [*about_terminal(this_terminal(), os.environ), *about_disk(), *about_torch(probe(python), python)]
    lines: list[str] = []
    marks = {"ok": "✓", "warn": "!", "bad": "✗"}
    for one in seen:
        lines.append(f"{marks[one.state]} {one.what:<12} {one.found}")
        if one.mend:
            lines.append(f"{'':14} {one.mend}")
    return lines, all(one.state != "bad" for one in seen)


def about_terminal(terminal: Terminal, environ: Mapping[str, str]) -> list[Seen]:
    """Terminal type, size, colours, characters, copying."""
    seen = []
    why = refusal(terminal)
    if why is None:
        seen.append(Seen("terminal", safe_text(terminal.term)))
    else:
        seen.append(Seen("terminal", "no screen can be drawn here", "warn", why))
    small = too_small(terminal.width, terminal.height)
    size = f"{terminal.width}×{terminal.height}"
    seen.append(Seen("size", size) if small is None else Seen("size", size, "warn", f"The screen {small}."))
    seen.append(_colours(terminal, environ))
    if terminal.wants_ascii:
        mend = "Plots and marks come in ASCII. For braille: a UTF-8 locale, such as LANG=C.UTF-8."
        seen.append(Seen("characters", "no UTF-8", "warn", mend))
    else:
        seen.append(Seen("characters", "UTF-8"))
    seen.append(_clipboard(terminal))
    link = "over SSH: 4 paints a second" if terminal.ssh else "8 paints a second"
    seen.append(Seen("painting", f"{link} at most; --paints chooses otherwise"))
    return seen


def _colours(terminal: Terminal, environ: Mapping[str, str]) -> Seen:
    if terminal.colours == "none":
        why = "NO_COLOR is set" if environ.get("NO_COLOR") else f"TERM is {safe_text(terminal.term) or 'not set'}"
        return Seen("colours", f"none: {why}; marks differ in shape")
    if terminal.colours == "16":
        return Seen("colours", "16", "warn", "If the terminal has more: export TERM=xterm-256color.")
    return Seen("colours", "256, which is all that the themes use")


def _clipboard(terminal: Terminal) -> Seen:
    if terminal.multiplexer == "tmux":
        return Seen("copying", "by tmux, to its buffer and on to the terminal; also into the session's copied.txt")
    if terminal.multiplexer == "screen":
        return Seen("copying", "screen passes no copies on", "warn", "What is copied is in the session's copied.txt.")
    return Seen("copying", "by OSC 52, which most terminals take; also into the session's copied.txt")


def about_disk() -> list[Seen]:
    """Whether sessions can be kept."""
    home = sessions_home()
    folder = next((place for place in (home, *home.parents) if place.exists()), home)
    shown = safe_text(home, 4096)
    if not os.access(folder, os.W_OK | os.X_OK):
        return [Seen("sessions", f"{shown} cannot be written", "bad", "Set AMPTUI_HOME to a folder of your own.")]
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    state: Literal["ok", "warn"] = "ok" if free > 2**30 else "warn"
    mend = "" if state == "ok" else "A checkpoint needs twice its size and 64 MiB. AMPTUI_HOME may name a larger disk."
    return [Seen("sessions", f"{shown}, {free / 2**30:,.1f} GiB free", state, mend)]


def probe(python: str) -> Mapping[str, object]:
    """What the interpreter `python` says about its torch; {"error": …} where it says nothing."""
    environ = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    try:
        path = interpreter(python)
        done = subprocess.run(  # noqa: S603 - the interpreter that the user named
            [path, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            env=environ,
            cwd="/",  # `-c` imports from where it stands: a json.py in the working folder would run
            stdin=subprocess.DEVNULL,
            check=False,
        )
        said: Mapping[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    except LaunchError as error:
        return {"error": str(error)}
    except subprocess.TimeoutExpired:
        return {"error": f"importing torch took longer than {_PATIENCE_S} seconds"}
    except (OSError, ValueError, IndexError):
        return {"error": "the interpreter ended without an answer"}
    return said


def about_torch(said: Mapping[str, object], python: str) -> list[Seen]:
    """torch's version, devices, and what they mean for half types."""
    shown = safe_text(python, 4096)
    if said.get("torch") is None:
        error = safe_text(said.get("error") or "no torch")
        mend = "Name the interpreter that your project trains with: amptui doctor --python .venv/bin/python"
        return [Seen("torch", f"none in {shown}: {error}", "bad", mend)]
    version = str(said["torch"])
    seen = [Seen("torch", f"{safe_text(version)} in {shown} (Python {safe_text(said.get('python'))})")]
    numbers = version.split(".")[:2]
    if all(part.isdecimal() for part in numbers) and tuple(map(int, numbers)) < OLDEST_TORCH:
        wanted = ".".join(map(str, OLDEST_TORCH))
        seen = [Seen("torch", f"{safe_text(version)} in {shown}", "bad", f"amptui needs {wanted} or newer.")]
    devices = said.get("devices")
    if not isinstance(devices, list) or not devices:
        mend = "Verdicts about values hold on a CPU too; gains in time and memory are those of its own units."
        return [*seen, Seen("device", "CPU only: no CUDA device is visible to torch", "warn", mend)]
    return [*seen, *(_device(*device) for device in devices)]


def _device(name: object, major: object, minor: object) -> Seen:
    capability = (int(str(major)), int(str(minor)))
    shown = f"{safe_text(name)}, compute capability {capability[0]}.{capability[1]}"
    if capability < (7, 0):
        return Seen("device", shown, "warn", "No tensor cores: FP16 saves memory here, hardly time.")
    if capability < (8, 0):
        return Seen("device", shown, "warn", "FP16 tensor cores, but BF16 is emulated and slow.")
    return Seen("device", f"{shown}: tensor cores for FP16 and BF16")
