"""What `amptui` prints and writes goes to places that do not take it, and it is told to stop at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from amptui import cli
from amptui.report.own_error import say_own_error
from amptui.report.result_file import writable
from amptui.session.engine_file import processes_of, read_engine_file
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from tests.commands import Amptui, Done, documented, eventually, small_project

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@pytest.fixture
def amptui(tmp_path: Path) -> Amptui:
    return Amptui(tmp_path)


def piped(amptui: Amptui, line: str) -> Done:
    """Runs a shell line in which `amptui` stands for the command."""
    amptui.folder.joinpath("amptui").write_text(f'#!/bin/sh\nexec {sys.executable} -m amptui "$@"\n')
    amptui.folder.joinpath("amptui").chmod(0o700)
    environment = amptui.environment(PATH=f"{amptui.folder}:{os.environ['PATH']}")
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=amptui.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr, {})


def engine_mark(amptui: Amptui) -> str:
    """The mark of the engine that runs now."""
    eventually(lambda: list(amptui.home.glob("*/engine.json")))
    (file,) = amptui.home.glob("*/engine.json")
    said = read_engine_file(SessionFolder(file.parent))
    assert said is not None
    return said.mark


# The JSON.


def test_a_folder_for_the_json_is_refused_before_anything_runs(amptui: Amptui) -> None:
    done = amptui("check", "nothing.py:project", "--json", amptui.folder)
    assert done.code == 2
    assert done.err == f"amptui: --json {amptui.folder}: this is a folder; name a file in it\n"
    assert not amptui.home.exists()


@pytest.mark.parametrize("path", ["/proc/check.json", "~no-such-user-here/check.json", "missing/check.json"])
def test_a_json_that_cannot_be_written_is_refused_before_anything_runs(path: str) -> None:
    with pytest.raises(SessionError, match="--json"), writable(path):
        pass


def test_asking_whether_a_json_can_be_written_changes_nothing(tmp_path: Path) -> None:
    with writable(str(tmp_path / "new.json")):
        assert not (tmp_path / "new.json").exists()
    (tmp_path / "old.json").write_text("before")
    with writable(str(tmp_path / "old.json")):
        assert (tmp_path / "old.json").read_text() == "before"


def test_a_pipe_that_nobody_reads_is_refused_before_anything_runs(amptui: Amptui) -> None:
    os.mkfifo(amptui.folder / "pipe")
    for arguments in (("check", "nothing.py:project", "--json"), ("cases", "nothing.py:project", "-o")):
        done = amptui(*arguments, "pipe")
        assert done.code == 2
        assert done.err == f"amptui: {arguments[2]} pipe cannot be written: nobody reads this pipe\n"
    assert not amptui.home.exists()


def test_a_json_through_process_substitution_arrives_whole(amptui: Amptui) -> None:
    small_project(amptui.folder)
    done = piped(amptui, "amptui check small.py:project --json >(cat > got.json); echo; wait $!")
    assert json.loads((amptui.folder / "got.json").read_text())["verdict"] is not None, done.err


@needs_full
def test_a_json_on_a_full_disk_is_told_and_is_no_verdict(amptui: Amptui) -> None:
    small_project(amptui.folder)
    done = amptui("check", "small.py:project", "--json", FULL)
    assert done.code == 2
    assert done.err == "amptui: --json /dev/full cannot be written: No space left on device\n"


# The account.


@needs_full
def test_an_account_that_cannot_be_printed_ends_the_check_with_json(amptui: Amptui) -> None:
    small_project(amptui.folder)
    done = piped(amptui, "amptui check small.py:project --json check.json > /dev/full")
    assert done.code == 2
    assert "No space left on device" in done.err
    assert "Traceback" not in done.err
    result = documented((amptui.folder / "check.json").read_text(), 2)
    assert result["error"]["code"] == "output"


def test_a_reader_that_goes_is_not_a_rejection(amptui: Amptui) -> None:
    small_project(amptui.folder)
    done = piped(amptui, "set -o pipefail; amptui check small.py:project --json check.json | head -1")
    assert done.code == 2  # 1 would say that the project was judged, and rejected
    assert done.err == ""
    assert documented((amptui.folder / "check.json").read_text(), 2)["error"]["code"] == "output"


def test_closed_standard_descriptors_are_given_to_no_file(amptui: Amptui) -> None:
    small_project(amptui.folder)
    done = piped(amptui, "amptui check small.py:project --json check.json <&- >&- 2>&-")
    documented((amptui.folder / "check.json").read_text(), done.code)
    assert done.code == 0


@needs_full
@pytest.mark.parametrize("command", ["paths", "sessions"])
def test_no_command_shows_a_traceback_where_nothing_can_be_printed(amptui: Amptui, command: str) -> None:
    done = piped(amptui, f"amptui {command} > /dev/full")
    assert "Traceback" not in done.err
    assert "Exception ignored" not in done.err
    assert done.code == 2


def test_an_error_that_nobody_expected_is_one_message_and_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken() -> None:
        raise LookupError("\x1b[2J a hostile text")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(LookupError) as raised:
        broken()
    said = say_own_error(raised.value)
    assert r"amptui met an error of its own: LookupError: \x1b[2J a hostile text" in said
    (file,) = tmp_path.glob("amptui-error-*.txt")
    assert str(file) in said
    assert "in broken" in file.read_text()


def test_no_command_ends_with_a_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """1 would say that a project was judged and rejected."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("amptui.commands.setup.paths", lambda _given: 1 / 0)
    monkeypatch.setattr("amptui.cli._print_nothing_more", lambda: None)
    assert cli.main(["paths"]) == 2


def test_an_error_of_the_system_names_the_file() -> None:
    assert (
        say_own_error(PermissionError(13, "Permission denied", "/a/b")) == "/a/b: Permission denied (PermissionError)"
    )


# To be told to stop.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_client_interrupts_the_check(amptui: Amptui, number: signal.Signals) -> None:
    small_project(amptui.folder, loss="time.sleep(0.3)\n(told('far') if under_policy else None)")
    process = amptui.start("check", "small.py:project", "--json", "check.json")
    eventually((amptui.folder / "far").exists)
    mark = engine_mark(amptui)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert documented((amptui.folder / "check.json").read_text(), 130)["error"]["code"] == "interrupted"
    assert processes_of(mark) == []
    assert "model" in amptui.restored()


def test_a_client_that_was_told_to_ignore_hangups_goes_on(amptui: Amptui) -> None:
    small_project(amptui.folder, loss="told('far')")
    line = "trap '' HUP; amptui check small.py:project --json check.json & pid=$!; "
    line += "until [ -e far ]; do sleep 0.05; done; kill -HUP $pid; wait $pid"
    assert piped(amptui, line).code == 0


def test_a_second_interruption_does_not_leave_the_engine_behind(amptui: Amptui) -> None:
    small_project(amptui.folder, loss="told('far')\nwhile True: pass")
    process = amptui.start("check", "small.py:project", "--json", "check.json")
    eventually((amptui.folder / "far").exists)
    mark = engine_mark(amptui)
    process.send_signal(signal.SIGINT)
    time.sleep(1.0)  # it waits for the engine, which does not listen
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "Traceback" not in out + err
    assert "once more ends it at once" in err
    assert processes_of(mark) == []
    documented((amptui.folder / "check.json").read_text(), 130)


def test_an_engine_that_hangs_ends_when_its_client_was_killed(amptui: Amptui) -> None:
    small_project(
        amptui.folder,
        loss="import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\ntold('far')\n"
        "while True: time.sleep(1)",
    )
    process = amptui.start("check", "small.py:project")
    eventually((amptui.folder / "far").exists)
    mark = engine_mark(amptui)
    assert len(processes_of(mark)) == 2
    process.kill()
    process.communicate(timeout=10)
    eventually(lambda: processes_of(mark) == [], timeout=60)
    assert "model" in amptui.restored()


def test_an_engine_that_was_told_to_end_says_so(amptui: Amptui) -> None:
    small_project(amptui.folder, loss="told('far')\ntime.sleep(0.3)")
    process = amptui.start("check", "small.py:project", "--json", "check.json")
    eventually((amptui.folder / "far").exists)
    os.kill(int((amptui.folder / "far").read_text()), signal.SIGTERM)
    out, _err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "The engine ended before a verdict: signal SIGTERM" in " ".join(out.split())
    assert "SIGTERM" in json.loads((amptui.folder / "check.json").read_text())["error"]["message"]


# The working folder.

COMMANDS = ("--version", "paths", "sessions", "doctor", "new start.py", "check missing.py:project")
SHADOWS = ("yaml", "rich", "textual", "platformdirs", "random", "json", "typing", "zipfile", "torch")


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_in_the_working_folder_runs_in_the_client(amptui: Amptui, command: str) -> None:
    for module in SHADOWS:
        (amptui.folder / f"{module}.py").write_text(f"open({str(amptui.folder / 'RAN')!r}, 'a').write({module!r})\n")
    done = amptui(*command.split())
    assert "Traceback" not in done.err
    assert not (amptui.folder / "RAN").exists(), (amptui.folder / "RAN").read_text()
