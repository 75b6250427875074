"""The real program on a real terminal, with real engines: a newcomer's path, trips, hangs, kills, hang-ups."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.ui.on_terminal import OnTerminal

pytest.importorskip("torch")

PROJECT = """
import os, time, torch
from torch import nn
from amptui import Case, Policy, Project, Scaler, Update

torch.set_num_threads(1)
HANG = os.path.join(os.path.dirname(__file__), "hang")

def project(init_scale=1024.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def loss(model, batch):
        while os.path.exists(HANG):
            time.sleep(0.05)
        print("said by the project \\x1b[31m\\x1b]0;title\\x07\\x9b2J")
        x, y = batch
        return nn.functional.cross_entropy(model(x).float(), y) * 30

    draw = torch.Generator().manual_seed(1)
    batches = [(torch.randn(16, 8, generator=draw), torch.randint(0, 3, (16,), generator=draw)) for _ in range(12)]
    return Project(
        model=model,
        updates=[Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.01), loss=loss)],
        batches=batches,
        cases=[Case(id=f"c\\x1b[31m{n}", inputs=torch.randn(2, 8, generator=draw)) for n in range(2)],
        decide=lambda out: out.argmax(-1),
        policy=Policy(dtype="float16", scaler=Scaler(init_scale=init_scale)),
        name="tiny \\x1b]0;no\\x07",
    )

def overflowing():
    return project(2.0**22)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "tiny.py").write_text(PROJECT)
    return tmp_path


def started(home: Path, attribute: str = "project", **options: object) -> OnTerminal:
    program = OnTerminal("run", f"{home / 'tiny.py'}:{attribute}", home=home / "home", **options)  # type: ignore[arg-type]
    program.wait("c runs the FP32 baseline", timeout=90)
    return program


def to_the_trial(program: OnTerminal) -> None:
    program.press("c")
    program.wait("c shows the criteria")
    program.press("c")
    program.wait("c locks them")
    program.press("c")
    program.wait("s goes phase by phase")


def engine_of(home: Path) -> int:
    pid: int = json.loads(next((home / "home").glob("*/engine.json")).read_text())["pid"]
    return pid


def no_raw_controls(written: bytes) -> bool:
    """Whether nothing but the framework's own sequences reached the terminal: none that sets titles or clears."""
    return b"\x1b]0;" not in written and b"\x9b2J" not in written.replace("\x9b".encode(), b"")


def test_only_what_the_screen_says_leads_from_project_to_verdict_and_out(home: Path) -> None:
    with started(home) as program:
        to_the_trial(program)
        program.press("c")
        program.wait("ACCEPT", timeout=60)
        program.press("o")
        program.wait("said by the project \\x1b[31m")
        program.press("7")
        program.wait("amptui restore")
        program.press("q")
        program.wait("end the engine")
        program.press("e")
        assert program.end() == 0
        assert b"\x1b[?1049l" in program.written
        assert no_raw_controls(program.written)
    session = next((home / "home").glob("2*"))
    with OnTerminal("open", "last", home=home / "home", width=120, height=40) as replayed:
        replayed.wait("ACCEPT", "recorded")
        replayed.press("4")
        replayed.wait("iteration 11")
        replayed.press("q")
        assert replayed.end() == 0
    listed = subprocess.run(
        [sys.executable, "-m", "amptui", "sessions"],
        env={**os.environ, "AMPTUI_HOME": str(home / "home")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert session.name in listed.stdout
    assert "accept" in listed.stdout
    assert "\x1b" not in listed.stdout


def test_c_alone_leads_on_from_the_verdict_over_the_measurement_to_a_report_on_disk(home: Path) -> None:
    digits = ROOT / "sample_projects" / "digits" / "amptui.yaml"
    program = OnTerminal("run", str(digits), "--iterations", "4", home=home / "home", cwd=home)
    with program:
        program.wait("c runs the FP32 baseline", timeout=90)
        program.press("f")
        program.wait("boundary-1", "c writes them to a file", timeout=60)
        program.press("c")
        program.wait("write the found cases")
        program.press("\r")
        program.wait("torch.load(", "Project(…, cases=", timeout=30)
        assert (home / "found-cases.pt").is_file()
        program.press("q")
        program.wait("c runs the FP32 baseline")
        to_the_trial(program)
        program.press("a")
        program.wait("ACCEPT", "c goes on to time and memory", timeout=60)
        program.press("c")
        program.wait("Not measured yet", "c measures")
        program.press("c")
        program.wait("rounds", "C ends it early", timeout=60)
        program.wait("c goes on to the report", "quartiles", timeout=120)
        program.press("c")
        program.wait("code to paste", "c writes the report")
        program.press("c")
        program.wait("HTML: one file")
        program.press("h")
        program.wait("write the report to this file")
        program.press("\r")
        program.wait("The report is written", timeout=60)
        (written,) = home.glob("*.html")
        page = written.read_text(encoding="utf-8")
        assert all(part in page for part in ("ACCEPTED", "Time, memory", "def train_step"))
        program.press("q")
        program.wait("end the engine")
        program.press("e")
        assert program.end() == 0


def test_a_trip_a_hanging_phase_and_a_killed_engine_all_lead_back_to_fp32(home: Path) -> None:
    with started(home, "overflowing") as program:
        to_the_trial(program)
        program.press("c")
        program.wait("iteration 0 is held", "c goes on without it", timeout=60)
        program.press("r")
        program.wait("×2^21", timeout=60)
        program.press("n")
        program.wait("Paused at step 0 (after this iteration)", timeout=60)
        program.press("n")
        program.wait("iteration 1 is held", timeout=60)

        (home / "hang").touch()
        program.press("c")
        program.wait("running")
        program.press("F")
        program.wait("fall back to FP32")
        program.press("F")
        program.wait("the engine does not answer", timeout=20)
        first = engine_of(home)
        program.press("N")
        time.sleep(1.5)
        (home / "hang").unlink()
        program.wait("Back at the FP32 checkpoint", timeout=60)
        second = engine_of(home)
        assert first != second

        os.kill(second, signal.SIGKILL)
        program.wait("engine gone", "SIGKILL")
        back_to_fp32_and_out(program)


def back_to_fp32_and_out(program: OnTerminal) -> None:
    """From an engine that is gone, by keys alone."""
    program.press("F")
    program.wait("fall back to FP32")
    program.press("F")
    program.wait("Back at the FP32 checkpoint", timeout=60, without="engine gone")
    program.press("q")
    program.wait("end the engine")
    program.press("e")
    assert program.end() == 0


def at_the_baseline_that_hangs(program: OnTerminal, home: Path) -> None:
    (home / "hang").touch()
    program.press("c")
    program.wait("true FP32")


def at_the_criteria(program: OnTerminal, home: Path) -> None:
    program.press("c")
    program.wait("c shows the criteria")


def at_the_verdict(program: OnTerminal, home: Path) -> None:
    to_the_trial(program)
    program.press("c")
    program.wait("ACCEPT", timeout=60)


@pytest.mark.parametrize(
    "reach",
    [lambda program, home: None, at_the_baseline_that_hangs, at_the_criteria, at_the_verdict],
    ids=["project", "baseline", "criteria", "verdict"],
)
def test_an_engine_killed_in_any_stage_is_told_and_the_way_back_is_open(home: Path, reach: Callable[..., None]) -> None:
    with started(home) as program:
        reach(program, home)
        os.kill(engine_of(home), signal.SIGKILL)
        program.wait("engine gone", "SIGKILL", timeout=30)
        (home / "hang").unlink(missing_ok=True)
        back_to_fp32_and_out(program)
    kept = subprocess.run(
        [sys.executable, "-m", "amptui", "restore", "last", "--verify"],
        env={**os.environ, "AMPTUI_HOME": str(home / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert kept.returncode == 0, kept.stdout + kept.stderr


def test_a_hang_up_leaves_the_engine_waiting_and_attach_takes_it_up(home: Path) -> None:
    with started(home) as program:
        to_the_trial(program)
        program.press("n")
        program.wait("Paused at step 0")
        program.child.kill(signal.SIGHUP)
        assert program.end() == 128 + signal.SIGHUP
        assert b"\x1b[?1049l" in program.written
    engine = engine_of(home)
    os.kill(engine, 0)
    # as after `eval $(resize)`: exported sizes must not pin the screen to them
    pinned = {"COLUMNS": "80", "LINES": "24"}
    with OnTerminal("attach", home=home / "home", env=pinned) as attached:
        attached.wait("Paused at step 0", timeout=30)
        attached.press("s")
        attached.wait("after zero_grad")
        for size in ((10, 3), (200, 60), (80, 24)):
            attached.resize(*size)
            attached.read(0.3)
        attached.wait("after zero_grad")
        attached.press("q")
        attached.wait("end the engine")
        attached.press("e")
        assert attached.end() == 0
    assert not list((home / "home").glob("*/engine.json"))


def test_sigterm_restores_the_terminal_and_the_exit_code_says_so(home: Path) -> None:
    with started(home) as program:
        engine = engine_of(home)
        program.child.kill(signal.SIGTERM)
        assert program.end() == 128 + signal.SIGTERM
        assert b"\x1b[?1049l" in program.written
        assert b"amptui attach" in program.written
        os.kill(engine, signal.SIGKILL)


@pytest.mark.parametrize(
    ("environ", "says"),
    [({"TERM": "dumb"}, "no screen can be drawn"), ({"TERM": ""}, "TERM is not set")],
)
def test_where_no_screen_can_be_drawn_one_sentence_says_what_to_do(
    home: Path, environ: dict[str, str], says: str
) -> None:
    with OnTerminal("run", f"{home / 'tiny.py'}:project", home=home / "home", env=environ) as program:
        assert program.end() == 2
        text = " ".join(program.written.decode().split())
        assert says in text
        assert f"with the same options: amptui check {home / 'tiny.py'}:project" in text
        assert not (home / "home").exists()


def test_back_from_the_shell_the_whole_screen_is_there_again(home: Path) -> None:
    with started(home) as program:
        program.read(1.0)
        before = program.text
        program.press("\x1a")  # ctrl+z
        program.read(1.0)
        program.screen.reset()
        os.kill(program.child.pid, signal.SIGCONT)
        program.wait("1 PROJECT", "c runs the FP32 baseline")
        program.read(0.5)
        assert program.text == before
        os.kill(engine_of(home), signal.SIGKILL)


def test_ctrl_q_asks_too(home: Path) -> None:
    with started(home) as program:
        program.press("\x11")
        program.wait("leave amptui?")
        program.press("l")
        assert program.end() == 0
        assert "amptui attach" in program.written.decode()
        os.kill(engine_of(home), signal.SIGKILL)


def test_without_colour_no_colour_is_written(home: Path) -> None:
    with started(home, env={"NO_COLOR": "1"}) as program:
        assert not re.search(rb"\x1b\[[0-9;]*[34]8;[25];", program.written)
        os.kill(engine_of(home), signal.SIGKILL)


def test_what_keeps_it_from_starting_is_one_message(home: Path) -> None:
    for arguments, says in (
        (("run", "nowhere.py:project"), "nowhere.py"),
        (("open", "nosuch"), "no session"),
        (("attach", "nosuch"), "no session"),
        (("run", f"{home / 'tiny.py'}:project", "--theme", "pink"), "invalid choice"),
    ):
        with OnTerminal(*arguments, home=home / "home") as program:
            assert program.end() == 2
            text = program.written.decode()
            assert says in text
            assert "Traceback" not in text


MENDED = """
import sys
path = [argument for argument in sys.argv[1:] if argument.endswith(".py")][-1]
text = open(path).read()
open(path, "w").write(text.replace("y) * 30", "y) * 0.001"))
"""


def test_an_edited_line_is_loaded_anew_the_kept_case_runs_first_then_the_baseline(home: Path) -> None:
    (home / "edit.py").write_text(MENDED)
    with started(home, "overflowing", env={"EDITOR": f"{sys.executable} {home / 'edit.py'}", "VISUAL": ""}) as program:
        to_the_trial(program)
        program.press("c")
        program.wait("iteration 0 is held", timeout=60)
        first = engine_of(home)
        program.press("d")
        program.wait("diagnosis", "R tries the edit")
        program.press("R")
        program.wait("Not fixed", "c proves the baseline again", timeout=90)
        program.press("e")
        program.wait("R loads it anew")
        program.press("R")
        program.wait("Fixed", "c proves the baseline again", timeout=90, without="Not fixed")
        assert engine_of(home) != first
        program.press("c")
        program.wait("c shows the criteria", timeout=60)
        program.press("v")  # what the first engine told while it was ended is told here too
        program.wait(" events ", "verdict of trial 1: inconclusive")
        program.press("q")
        program.press("q")
        program.wait("end the engine")
        program.press("e")
        assert program.end() == 0


def test_a_session_that_was_attached_to_gets_a_new_engine_too(home: Path) -> None:
    with started(home) as program:
        program.child.kill(signal.SIGHUP)
        program.end()
    with OnTerminal("attach", home=home / "home") as attached:
        attached.wait("c runs the FP32 baseline", timeout=30)
        first = engine_of(home)
        os.kill(first, signal.SIGKILL)
        attached.wait("engine gone", "N: new engine")
        attached.press("N")
        attached.wait("Back at the FP32 checkpoint", timeout=60, without="engine gone")
        assert engine_of(home) != first
        attached.press("q")
        attached.wait("end the engine")
        attached.press("e")
        assert attached.end() == 0
