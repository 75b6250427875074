"""`amptui inspect` on a real terminal: when it opens a screen, when it prints, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inspection.writer import T, save, scaler, weights
from tests.ui.on_terminal import OnTerminal


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return save(tmp_path / "clean.pt", {"model": weights(), "scaler": scaler(512.0, tracker=37), "step": 3})


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    return save(tmp_path / "dead.pt", {"model": weights(), "scaler": scaler(0.0)})


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Too large for its values to be read without being asked: 70 MB of the 64 that count as small."""
    raw = bytes(70 << 20)
    return save(tmp_path / "large.pt", {"model": {"w": T(shape=(len(raw) // 4,), raw=raw)}, "scaler": scaler(512.0)})


def on_terminal(home: Path, *arguments: object, **options: object) -> OnTerminal:
    return OnTerminal("inspect", *map(str, arguments), home=home, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_it_opens_idles_without_a_byte_and_q_gives_the_exit_code(
    size: tuple[int, int], clean: Path, tmp_path: Path
) -> None:
    with on_terminal(tmp_path, clean, width=size[0], height=size[1]) as terminal:
        terminal.wait("✓ no fault", "512 = 2^9", "grows after 1,963 more clean", "q quit")
        terminal.read(0.5)
        assert terminal.read(1.0) == b""
        terminal.press("q")
        assert terminal.end() == 0
        assert b"clean.pt: no fault" in terminal.written
        assert b"Traceback" not in terminal.written


def test_a_fault_is_the_exit_code_one(dead: Path, tmp_path: Path) -> None:
    with on_terminal(tmp_path, dead) as terminal:
        terminal.wait("✗ 1 fault", "the scale is zero")
        terminal.press("q")
        assert terminal.end() == 1


def test_two_open_on_what_happened_between_them(clean: Path, dead: Path, tmp_path: Path) -> None:
    with on_terminal(tmp_path, clean, dead) as terminal:
        terminal.wait("3 COMPARE", "scale 512 → 0")
        terminal.press("1")
        terminal.wait("✓ no fault", "512 = 2^9")
        terminal.press("q")
        assert terminal.end() == 1


@pytest.mark.parametrize(
    ("more", "env"),
    [(("--plain",), {}), (("--json", "found.json"), {}), ((), {"TERM": "dumb"})],
    ids=["plain", "json", "dumb"],
)
def test_it_prints_where_that_is_asked_for_or_no_screen_can_be_drawn(
    more: tuple[str, ...], env: dict[str, str], clean: Path, tmp_path: Path
) -> None:
    with on_terminal(tmp_path, clean, *more, env=env, cwd=tmp_path) as terminal:
        assert terminal.end() == 0
        assert b"exact resume" in terminal.written
        assert b"\x1b" not in terminal.written
    assert (tmp_path / "found.json").exists() is ("--json" in more)


def test_what_is_not_there_is_told_without_a_screen(tmp_path: Path) -> None:
    with on_terminal(tmp_path, tmp_path / "nothing.pt") as terminal:
        assert terminal.end() == 2
        assert b"No such file or directory" in terminal.written
        assert b"\x1b" not in terminal.written


def test_piped_it_prints(clean: Path) -> None:
    command = [sys.executable, "-m", "amptui", "inspect", str(clean)]
    told = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0
    assert "exact resume" in told.stdout
    assert told.stderr == ""


def test_values_of_a_large_file_are_read_by_a_key(large: Path, tmp_path: Path) -> None:
    with on_terminal(tmp_path, large) as terminal:
        terminal.wait("not read: v reads them", "v read values")
        terminal.press("v")
        terminal.wait("1 tensor all zero", without="v read values")
        terminal.press("q")
        terminal.end()


def test_what_is_typed_ahead_goes_into_the_search(clean: Path, tmp_path: Path) -> None:
    with on_terminal(tmp_path, clean) as terminal:
        terminal.wait("512 = 2^9", "q quit")
        terminal.press("/growth_/tracker q\x7f\x7f\r")
        terminal.wait("/growth_/tracker", "0 found", "esc back")
        terminal.press("/growth_t\r")
        terminal.wait("/growth_t ", "1 found", "scaler._growth_tracker")
        terminal.press("q")
        assert terminal.end() == 0


def test_leaving_while_it_reads_leaves_no_process_behind(large: Path, tmp_path: Path) -> None:
    with on_terminal(tmp_path, large, "--values") as terminal:
        terminal.wait("quit")
        terminal.press("q")
        terminal.end()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            assert str(large).encode() not in arguments, arguments


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_the_terminal_whole(number: signal.Signals, clean: Path, tmp_path: Path) -> None:
    with on_terminal(tmp_path, clean) as terminal:
        terminal.wait("512 = 2^9")
        os.kill(terminal.child.pid, number)
        assert terminal.end() == 128 + number
        assert terminal.written.rfind(b"\x1b[?1049l") > terminal.written.rfind(b"\x1b[?1049h") >= 0
        assert b"Traceback" not in terminal.written


def test_a_mistake_in_the_configuration_is_told_with_its_place(clean: Path, tmp_path: Path) -> None:
    config = tmp_path / "config" / "amptui" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("keys:\n  copy: n\n  iteration: m\n")
    with on_terminal(tmp_path, clean) as terminal:
        assert terminal.end() == 2
        assert "bound to both" in terminal.text
        assert "config.yaml" in terminal.text


def test_neither_torch_nor_user_code_is_imported_for_the_screen() -> None:
    code = (
        "import sys, amptui.ui.inspect.app, amptui.ui.inspect.command\n"
        "print(sorted({'torch', 'numpy', 'yaml'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert told.stdout == "[]\n", told.stderr
