"""Projects whose code turns against the engine: one message at their own line, exit 2, JSON, nothing left running."""

from __future__ import annotations

from pathlib import Path

import pytest

from amptui.engine.ended_stages import events_of
from amptui.engine.failures import UserCodeError, raised_by_user
from amptui.protocol.events import Refused
from amptui.text import safe_text, text_of
from tests.commands import Amptui, Done, small_project

UNREADABLE = """
class Unreadable(Exception):
    def __str__(self):
        {said}
    __repr__ = __str__
"""
CHAIN = "def deeper():\n    deeper()\n"
STATE = """
class State:
    def __init__(self, value):
        self.value = value
    def state_dict(self):
        return self.value
    def load_state_dict(self, value):
        self.value = value
class Failing:
    def state_dict(self):
        raise LookupError("no state")
    def load_state_dict(self, state):
        pass
ENDLESS = []
ENDLESS.append(ENDLESS)
"""


@pytest.fixture
def amptui(tmp_path: Path) -> Amptui:
    return Amptui(tmp_path)


def refused(amptui: Amptui, **parts: str) -> Done:
    """Checks a small project with `parts` in it; it must not be judged, and say why in one message."""
    small_project(amptui.folder, **parts)
    done = amptui.check("small.py:project")
    assert done.code == 2, done.said
    assert "Traceback" not in done.out + done.err
    assert "\x1b" not in done.out
    assert done.said.count("✗") == 1, done.out
    return done


def line_of(amptui: Amptui, text: str) -> str:
    file = amptui.folder / "small.py"
    number = next(n for n, line in enumerate(file.read_text().splitlines(), 1) if text in line)
    return f"{file}:{number}"


# What it raises.


@pytest.mark.parametrize("said", ["raise ValueError", "raise SystemExit(0)", "return 3", "raise KeyboardInterrupt"])
def test_an_exception_without_text_is_told_by_its_type(amptui: Amptui, said: str) -> None:
    done = refused(amptui, top=UNREADABLE.format(said=said), loss="raise Unreadable()")
    assert "Unreadable: (its text cannot be read)" in done.error["message"]
    assert done.error["where"] == line_of(amptui, "raise Unreadable()")


def test_the_engine_tells_its_own_failure_whatever_the_text(amptui: Amptui) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    assert text_of(Unreadable()) == "(its text cannot be read)"
    assert safe_text(Unreadable()) == "(its text cannot be read)"


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "GeneratorExit", "BaseException('x')"])
def test_what_is_no_ordinary_exception_is_the_project_s_own(amptui: Amptui, raised: str) -> None:
    done = refused(amptui, loss=f"raise {raised}")
    assert raised.partition("(")[0] in done.error["message"]
    assert done.error["where"] == line_of(amptui, f"raise {raised}")


def test_an_endless_recursion_is_told_in_a_few_frames(amptui: Amptui) -> None:
    done = refused(amptui, top=CHAIN, loss="deeper()")
    assert "RecursionError" in done.error["message"]
    assert len(done.out) < 4000


def test_an_endless_recursion_keeps_a_bounded_number_of_frames() -> None:
    def deeper() -> None:
        deeper()

    failure = UserCodeError("forward")
    with pytest.raises(RecursionError) as raised:
        deeper()
    failure.__cause__ = raised.value
    assert len(failure.frames) == 50


# What amptui only uses in passing.


def test_a_state_that_cannot_be_given_is_told_at_its_line(amptui: Amptui) -> None:
    done = refused(amptui, top=STATE, project="extra_state=dict(mine=Failing()),")
    assert "LookupError" in done.error["message"]
    assert "no state" in done.error["message"]
    assert done.error["where"] == line_of(amptui, "raise LookupError")


@pytest.mark.parametrize(
    ("value", "said"), [("print", "extra_state/mine"), ("ENDLESS", "contains itself"), ("object()", "extra_state/mine")]
)
def test_a_state_that_no_safe_file_holds_is_refused_by_its_path(amptui: Amptui, value: str, said: str) -> None:
    done = refused(amptui, top=STATE, project=f"extra_state=dict(mine=State({value})),")
    assert done.error["code"] == "state"
    assert said in done.error["message"]
    assert done.error["hint"]


def test_a_module_s_own_state_that_cannot_be_kept_is_refused(amptui: Amptui) -> None:
    done = refused(amptui, load="Net.get_extra_state = lambda self: print\nNet.set_extra_state = lambda self, _: None")
    assert done.error["code"] == "state"
    assert "module_extra_state" in done.error["message"]


def test_a_signal_handler_that_raises_is_told(amptui: Amptui) -> None:
    top = "def too_slow(*_):\n    raise TimeoutError('too slow')\n"
    loss = "signal.signal(signal.SIGALRM, too_slow)\nsignal.setitimer(signal.ITIMER_REAL, 0.01)"
    small_project(amptui.folder, top=top, loss=loss)
    done = amptui.check("small.py:project")  # it comes wherever the engine is by then, also where nothing mends it
    assert done.code == 2, done.said
    assert "Traceback" not in done.out + done.err
    assert "too slow" in done.error["message"]
    assert done.error["where"] == line_of(amptui, "raise TimeoutError")
    assert done.error["hint"]
    assert "an error of its own" not in done.out


def test_an_error_of_amptui_itself_is_not_taken_for_the_project_s() -> None:
    with pytest.raises(TypeError) as raised:
        safe_text("x", limit="no number")  # type: ignore[arg-type]
    assert raised_by_user(raised.value) is None


# What it gives.


@pytest.mark.parametrize(
    ("load", "code"),
    [
        ("model.inner = nn.Module()\nmodel.inner.back = model", "module-cycle"),
        ("model.scripted = torch.jit.script(nn.Linear(2, 2))", "scripted"),
        ("model = torch.jit.script(nn.Linear(2, 2))", "scripted"),
    ],
)
def test_a_model_that_cannot_be_walked_is_refused(amptui: Amptui, load: str, code: str) -> None:
    done = refused(amptui, load=load)
    assert done.error["code"] == code
    assert done.error["hint"]


def test_an_extra_state_that_is_no_mapping_is_refused(amptui: Amptui) -> None:
    done = refused(amptui, project="extra_state=[1],")
    assert "Project(extra_state=…) is list" in done.error["message"]
    assert done.error["where"] == line_of(amptui, "return Project(")


def test_a_schedule_that_is_over_before_the_stretch_is_told_with_its_mend() -> None:
    _failed, told = events_of(UserCodeError("scheduler", update="main"))
    assert isinstance(told, Refused)
    assert "--iterations" in told.hint


def test_batches_with_nested_tensors_are_judged(amptui: Amptui) -> None:
    nested = (
        "batches=[(n, torch.nested.nested_tensor(list(x[:, None]), layout=torch.jagged), y) for n, x, y in batches()],"
    )
    small_project(amptui.folder, project="").write_text(
        (amptui.folder / "small.py")
        .read_text()
        .replace("batches=batches(),", nested)
        .replace(
            "F.cross_entropy(model(x), y)\n\n\ndef decide", "F.cross_entropy(model(x.values()), y)\n\n\ndef decide"
        )
    )
    done = amptui.check("small.py:project")
    assert done.code == 0, done.said


# What it does to its process.


def test_a_session_that_is_removed_under_the_engine_is_a_refusal(amptui: Amptui) -> None:
    gone = "import shutil\nshutil.rmtree(os.environ['AMPTUI_HOME'])"
    small_project(amptui.folder, load=gone)
    done = amptui.check("small.py:project")
    assert done.code == 2
    assert "Traceback" not in done.out + done.err
    assert "AMPTUI_HOME" in done.error["hint"]
    assert "an error of its own" not in done.out


def test_a_disk_that_takes_no_more_is_a_refusal(amptui: Amptui) -> None:
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    small_project(amptui.folder, load=full)
    done = amptui.check("small.py:project")
    assert done.code == 2
    assert "Traceback" not in done.out + done.err
    assert "an error of its own" not in done.out
    assert done.error["code"] == "session"


def test_an_engine_whose_modules_were_removed_does_not_count_as_closed_files(amptui: Amptui) -> None:
    small_project(amptui.folder, load="[sys.modules.pop(name) for name in list(sys.modules) if 'amptui' in name]")
    done = amptui.check("small.py:project")
    assert done.code in (0, 2)
    assert "Traceback" not in done.out + done.err
    assert "closed files that are not its own" not in done.said


def test_processes_of_a_project_that_cleared_its_environment_end_with_it(amptui: Amptui) -> None:
    start = "import subprocess\nchild = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    start += "(HERE / 'child').write_text(str(child.pid))\nos.environ.clear()"
    small_project(amptui.folder, load=start)
    done = amptui.check("small.py:project")
    assert done.code == 0, done.said
    child = Path("/proc", (amptui.folder / "child").read_text(), "stat")
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"  # until its parent reaps it


def test_more_iterations_than_can_be_counted_run_all_there_are(amptui: Amptui) -> None:
    small_project(amptui.folder)
    done = amptui.check("small.py:project", "--iterations", 10**23)
    assert done.code == 0, done.said
    assert done.result["updates"][0]["iterations"] == 6
