"""The command line: what each command answers, where it writes, and how it refuses."""

# ruff: noqa: E501 - one row of a table is one line

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path

import pexpect
import pytest

import amptui as package
from amptui.cli import main
from tests.commands import Amptui, documented, small_project

ESCAPE = "\x1b"


@pytest.fixture
def amptui(tmp_path: Path) -> Amptui:
    return Amptui(tmp_path)


# Answers at once


def test_version_and_help(amptui: Amptui) -> None:
    version = amptui("--version")
    assert (version.code, version.out) == (0, f"amptui {package.__version__}\n")
    said = amptui("--help")
    assert said.code == 0
    for command in ("check", "restore", "new"):
        assert command in said.out
        assert amptui(command, "--help").code == 0


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_load_no_library(amptui: Amptui, option: str) -> None:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr))\n"
        f"sys.argv = ['amptui', {option!r}]\n"
        "from amptui.cli import main\nsys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        cwd=amptui.folder,
        env=amptui.environment(),
    )
    assert done.returncode == 0
    loaded = set(done.stderr.split())
    assert "amptui" in loaded
    assert loaded & {"torch", "numpy", "textual", "rich", "yaml", "platformdirs", "asyncio", "sqlite3"} == set()


def test_without_a_command_the_commands_are_listed(amptui: Amptui) -> None:
    done = amptui()
    assert (done.code, done.out) == (2, "")
    assert done.err == amptui("--help").out


def test_doctor_wraps_at_words(amptui: Amptui, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(
        "amptui.commands.setup.examination", lambda _python: (["✓ copying      " + "by tmux and " * 12], True)
    )
    printed: list[str] = []
    monkeypatch.setattr("builtins.print", printed.append)
    assert main(["doctor"]) == 0
    first, *others = printed[0].splitlines()
    assert first.startswith("✓ copying      by tmux")
    assert others
    assert all(line.startswith(" " * 15 + line.strip()[:2]) for line in others), "below the text"
    assert max(map(len, [first, *others])) <= 60
    assert {word for line in others for word in line.split()} <= {"by", "tmux", "and"}, "no word is cut"


def test_a_command_is_needed_and_abbreviations_are_not_guessed(amptui: Amptui) -> None:
    for arguments in ([], ["chec"], ["check"], ["check", "a.py:b", "--iter", "3"], ["--vers"]):
        done = amptui(*arguments)
        assert done.code == 2
        assert done.err.startswith("usage: amptui")
        assert "Traceback" not in done.said


# Refusals: exit code 2, one message with its mend, JSON, no traceback

GOOD = "from amptui import Project\n\ndef build():\n    return Project(model=None)\n"

WRONG = {
    "no such file": ("trian.py:build", {}, ["trian.py", "train.py"]),
    "no attribute named": ("train.py", {}, ["train.py:build"]),
    "yaml: unknown key": ("amptui.yaml", {"amptui.yaml": "entry: train.py:build\niteration: 3\n"}, ["amptui.yaml:2:1", "iterations"]),
    "yaml: wrong type": ("amptui.yaml", {"amptui.yaml": "entry: train.py:build\niterations: many\n"}, ["amptui.yaml:2:13"]),
    "yaml: no yaml": ("amptui.yaml", {"amptui.yaml": "entry: [\n"}, ["amptui.yaml:"]),
    "yaml: not there": ("other.yaml", {}, ["other.yaml"]),
    "attribute missing": ("train.py:biuld", {}, ["biuld", "build"]),
    "syntax error": ("train.py:build", {"train.py": "def build(:\n"}, ["train.py:1"]),
    "missing dependency": ("train.py:build", {"train.py": "import no_such_dependency\n"}, ["no_such_dependency", "train.py:1"]),
    "exception on import": ("train.py:build", {"train.py": "x = 1\n{}['lr']\n"}, ["KeyError", "train.py:2"]),
    "exit on import": ("train.py:build", {"train.py": "import sys\nsys.exit('no data')\n"}, ["no data", "train.py:2"]),
    "no project": ("train.py:build", {"train.py": "def build(): return 3\n"}, ["Project", "int"]),
    "no model": ("train.py:build", {}, ["model"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_spec_is_one_message_that_names_the_place_and_the_mend(amptui: Amptui, name: str) -> None:
    spec, files, words = WRONG[name]
    for file, text in ({"train.py": GOOD} | files).items():
        (amptui.folder / file).write_text(text, encoding="utf-8")
    done = amptui.check(spec)
    assert done.code == 2, done.said
    assert "Traceback" not in done.said
    message = " ".join(str(done.error[part]) for part in ("message", "where", "hint"))
    for word in words:
        assert word in message
        assert word in done.said
    assert done.error["hint"]
    assert done.result["findings"] == []
    assert done.out.count("Cannot be judged") + done.err.count("amptui: ") == 1


def test_control_characters_of_foreign_names_reach_no_terminal(amptui: Amptui) -> None:
    done = amptui.check(f"{ESCAPE}[31mevil.py:build")
    assert done.code == 2
    assert ESCAPE not in done.out + done.err
    assert "evil" in done.said


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--dtype", "fp8"], "bfloat16"),
        (["--iterations", "0"], "iterations"),
        (["--python", "no-such-python"], "no-such-python"),
        (["--device", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_option_is_refused_by_name(amptui: Amptui, options: list[str], word: str) -> None:
    done = amptui.check(f"{small_project(amptui.folder)}:project", *options)
    assert done.code == 2, done.said
    assert word in done.said
    assert "Traceback" not in done.said


def test_an_interpreter_without_torch_is_refused_with_the_option_that_mends_it(amptui: Amptui) -> None:
    venv.create(amptui.folder / "venv", symlinks=True, with_pip=False)
    done = amptui.check(f"{small_project(amptui.folder)}:project", "--python", "venv/bin/python")
    assert done.code == 2
    assert f"{amptui.folder}/venv/bin/python has no torch" in done.error["message"]
    assert "--python" in done.error["hint"]


@pytest.mark.parametrize("target", ["missing/out.json", "small.py/out.json", "."])
def test_a_json_file_that_cannot_be_written_is_refused_before_anything_runs(amptui: Amptui, target: str) -> None:
    done = amptui("check", f"{small_project(amptui.folder)}:project", "--json", target)
    assert done.code == 2
    assert target in done.err
    assert len(done.err.splitlines()) == 1
    assert not amptui.home.exists()
    assert not (amptui.folder / "before.pt").exists()


# What check writes and where


def test_options_reach_the_engine_and_the_session_lies_where_it_was_asked_for(amptui: Amptui) -> None:
    spec = f"{small_project(amptui.folder)}:project"
    options = ["--session", "here", "--iterations", "4", "--dtype", "bfloat16", "--device", "cpu"]
    done = amptui.check(spec, *options, "--python", sys.executable)
    assert done.code == 0, done.said
    assert done.result["session"] == str(amptui.folder / "here")
    assert done.result["policy"]["dtype"] == "bfloat16"
    assert done.result["scaler"] is None
    assert done.result["updates"][0]["iterations"] == 4
    assert done.result["environment"]["executable"] == sys.executable
    assert [path.name for path in amptui.home.glob("[!.]*")] == []
    assert f"amptui restore {amptui.folder / 'here'} -o fp32.pt" in done.said.replace(" \\ ", " ")
    assert amptui.restored("./here")["model"].keys() == amptui.restored("last")["model"].keys()

    again = amptui.check(spec, "--session", "here")
    assert again.code == 2
    assert "not empty" in again.error["message"]


def test_json_on_standard_output_is_nothing_but_json(amptui: Amptui) -> None:
    file = small_project(amptui.folder, load="print('from the project')\nos.write(1, b'and raw\\n')")
    done = amptui("check", f"{file}:project", "--json", "-")
    assert done.code == 0, done.err
    result = documented(done.out, 0)
    assert "ACCEPT" in done.err
    kept = Path(result["session"], "output.log").read_text(encoding="utf-8")
    assert "from the project" in kept
    assert "and raw" in kept

    refused = amptui("check", "nothing.py:project", "--json", "-")
    assert documented(refused.out, 2)["error"]["message"] in refused.err


def test_what_inspect_and_report_write_to_standard_output_is_alone_there(amptui: Amptui) -> None:
    import torch

    torch.save({"model": {"w": torch.tensor([1.0, float("nan")])}}, amptui.folder / "a.pt")
    looked = amptui("inspect", "a.pt", "--json", "-")
    assert looked.code == 1
    assert json.loads(looked.out)["nonfinite"] == ["model.w"]
    assert "model.w" in looked.err
    session = Path(amptui.check(f"{small_project(amptui.folder)}:project", "--iterations", 1).result["session"])
    written = amptui("report", session, "-o", "-", "--format", "json")
    assert json.loads(written.out)["session"] == str(session)
    assert written.err == ""
    assert not (amptui.folder / "-").exists()


def test_without_a_terminal_it_prints_text_alone(amptui: Amptui) -> None:
    done = amptui.check(f"{small_project(amptui.folder)}:project", "--ascii", TERM="xterm-256color")
    assert done.code == 0
    assert ESCAPE not in done.out
    assert "\r" not in done.out
    assert done.out.isascii()
    assert done.err == ""
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize("colours", [True, False])
def test_on_a_terminal_it_shows_progress_and_colours_unless_told_not_to(amptui: Amptui, colours: bool) -> None:
    file = small_project(amptui.folder, loss="time.sleep(0.05)")
    environment = amptui.environment(TERM="xterm-256color", **({} if colours else {"NO_COLOR": "1"}))
    command, *arguments = amptui.command("check", f"{file}:project")
    terminal = pexpect.spawn(
        command, arguments, env=environment, cwd=str(amptui.folder), encoding="utf-8", timeout=90, dimensions=(24, 80)
    )
    terminal.expect(pexpect.EOF)
    terminal.close()
    shown = terminal.before
    assert terminal.exitstatus == 0, shown
    assert "ACCEPT" in shown
    assert re.search(r"trial, stretch.*\d", shown)
    assert bool(re.search(rf"{ESCAPE}\[(\d+;)*(3[0-7]|38;|9[0-7])", shown)) == colours


def test_a_reader_that_goes_away_ends_the_check_and_the_json_says_so(amptui: Amptui) -> None:
    process = amptui.start("check", f"{small_project(amptui.folder)}:project", "--json", "check.json")
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode == 2
    assert documented((amptui.folder / "check.json").read_text(), 2)["error"]["code"] == "output"


# new


def test_a_new_file_trains_and_is_accepted_as_it_is(amptui: Amptui) -> None:
    done = amptui("new", "mine.py")
    assert done.code == 0
    assert "amptui check mine.py:project" in done.out
    without = (
        f"import sys; sys.modules['amptui'] = None; import runpy; runpy.run_path({'mine.py'!r}, run_name='__main__')"
    )
    trained = subprocess.run(
        [sys.executable, "-c", without],
        check=False,
        capture_output=True,
        text=True,
        cwd=amptui.folder,
        env=amptui.environment(),
    )
    assert trained.returncode == 0, trained.stderr
    losses = [float(line.rpartition(" ")[2]) for line in trained.stdout.splitlines()]
    assert losses[-1] < losses[0] / 2
    checked = amptui.check("mine.py:project")
    assert checked.code == 0, checked.said
    assert checked.result["updates"][0]["applied"] > 0


def test_new_never_touches_a_file_that_is_there(amptui: Amptui) -> None:
    (amptui.folder / "mine.py").write_text("precious")
    done = amptui("new", "mine.py")
    assert done.code == 2
    assert "exists already" in done.err
    assert (amptui.folder / "mine.py").read_text() == "precious"


# restore


def test_restore_without_a_session_or_a_file_says_what_to_write(amptui: Amptui) -> None:
    for arguments, words in (
        (["last", "-o", "f.pt"], "there is no session"),
        (["2026", "--verify"], "no session '2026'"),
        (["./nowhere", "--verify"], "there is no session at"),
    ):
        done = amptui("restore", *arguments)
        assert done.code == 2
        assert words in done.err
        assert "Traceback" not in done.err


def test_restore_finds_a_session_by_the_beginning_of_its_id_and_replaces_only_when_told(amptui: Amptui) -> None:
    checked = amptui.check(f"{small_project(amptui.folder)}:project")
    session = Path(checked.result["session"]).name
    assert amptui("restore", session[:15], "-o", "f.pt").code == 0
    first = (amptui.folder / "f.pt").read_bytes()
    again = amptui("restore", session, "-o", "f.pt")
    assert again.code == 2
    assert "already exists; name another file, or replace it with --force" in again.err
    assert amptui("restore", session, "-o", "f.pt", "--force").code == 0
    assert (amptui.folder / "f.pt").read_bytes() == first
    asked = amptui("restore", session)
    assert asked.code == 2
    assert "-o FILE" in asked.err


# sessions


def test_sessions_tell_projects_apart_and_last_is_the_one_that_was_judged(amptui: Amptui) -> None:
    for folder in ("first", "second"):
        (amptui.folder / folder).mkdir()
    small_project(amptui.folder / "first").rename(amptui.folder / "first" / "train.py")
    judged = amptui.check("first/train.py:project", "--iterations", 1)
    assert judged.code == 0, judged.said
    (amptui.folder / "second" / "train.py").write_text("def other():\n    return 1 / 0\n")
    assert amptui.check("second/train.py:other").code == 2
    looked = amptui("cases", "first/train.py:project")
    assert looked.code == 0, looked.said

    rows = amptui("sessions", "--all").out.splitlines()
    assert [row.split()[0].split("-", 2)[2][:-5] for row in rows] == [
        "first-train",
        "second-train-other",
        "first-train",
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", " ".join(rows[0].split()[1:3])), "when it began"
    assert rows[0].split()[3] == "first/train"
    *shown, left = amptui("sessions").out.splitlines()
    assert [row.split() for row in shown] == [row.split() for row in rows if "no project was opened" not in row]
    assert left == "and 1 session that no project was opened in: --all"
    for piped, instead in (
        (["run", "first/train.py:project"], "amptui check first/train.py:project"),
        (["open", "last"], f"amptui report {Path(judged.result['session']).name}"),
        (["attach"], f"amptui report {Path(judged.result['session']).name}"),
    ):
        without_terminal = amptui(*piped)
        assert without_terminal.code == 2
        assert without_terminal.err.strip().endswith(instead), "what to do instead, as one can paste it"
    verified = amptui("restore", "last", "--verify")
    assert verified.code == 0
    report = amptui("report", "last", "--format", "json")
    assert json.loads(report.out)["session"] == judged.result["session"]


def test_json_is_strict_where_numbers_are_not_finite(amptui: Amptui) -> None:
    file = small_project(amptui.folder, decide="scores = scores / 0", loss="if under_policy:\n    x = x * float('inf')")
    done = amptui.check(f"{file}:project")
    assert done.code == 1, done.said
    assert "nan" in json.dumps(done.result["rows"])
    assert Path(done.result["session"]).stat().st_mode & 0o077 == 0
