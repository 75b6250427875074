"""What the engine says of its own failure, and what it holds out of user code's reach."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from amptui.engine.descriptors import moved_out_of_reach, out_of_reach
from amptui.engine.main import failure_of
from amptui.protocol.events import EngineFailed, Goodbye, OutputCaptured, Refused, Remarked, StageStarted
from amptui.session.engine_file import EngineFile, end_processes, processes_of, read_engine_file
from amptui.session.folder import SessionFolder
from amptui.session.history import history
from amptui.session.lock import lock_holder, process_start
from amptui.session.process import EngineDeath
from amptui.session.store import Store
from tests.session import engines
from tests.session.engines import receive, run


def raised(code: str) -> BaseException:
    try:
        exec(compile(code, "/project/train.py", "exec"), {})
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("\nraise ValueError('bad')", "ValueError: bad"),
        ("\nraise KeyError", "KeyError"),
        ("import sys\nsys.exit()", "the project's code ended the process: sys.exit()"),
        ("import sys\nsys.exit(2)", "the project's code ended the process: sys.exit(2)"),
    ],
)
def test_a_failure_names_what_and_where(code: str, message: str) -> None:
    failure = failure_of(raised(code))

    assert (failure.message, failure.where) == (message, "/project/train.py:2")
    assert "Traceback" in failure.detail


def test_a_failure_deep_in_recursion_is_cut() -> None:
    assert len(failure_of(raised("def f(): f()\nf()")).detail) <= 8000


def test_a_failure_is_recorded_and_ends_the_engine(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path / "session")
    with engines.start(folder) as engine:
        run(engine, "print('before')\nraise RuntimeError('own fault')")
        failure = receive(engine, EngineFailed)
        death = receive(engine, EngineDeath)

    assert death.how == "exit code 70"
    with Store.read(folder) as store:
        told = [envelope.event for envelope in history(store)]
    assert [type(event) for event in told] == [StageStarted, OutputCaptured, EngineFailed]
    assert told[-1] == failure
    assert lock_holder(folder) is None


def test_a_failing_store_is_told_although_it_cannot_be_recorded(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path / "session")
    with engines.start(folder) as engine:
        run(
            engine,
            "from amptui.session.errors import StoreError\nfrom amptui.protocol.events import Remarked\n"
            "def full(*_, **__): raise StoreError('the disk is full')\n"
            "outbox.store.record = full\noutbox.send(Remarked(code='', message=''))",
        )
        refused = receive(engine, Refused)
        assert "the disk is full" in refused.message
        assert "AMPTUI_HOME" in refused.hint
        assert receive(engine, Goodbye).why == "refused"


LATE = "import signal, torch\ndef late(*_, **__):\n    raise TimeoutError('too slow')\n"


def test_what_a_signal_handler_of_the_project_raises_between_stages_is_not_the_engines_own(tmp_path: Path) -> None:
    with engines.start(tmp_path) as engine:
        run(engine, f"{LATE}signal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, 0.2)")
        failure = receive(engine, EngineFailed)

    assert (failure.message, failure.where) == ("TimeoutError: too slow", "/project/train.py:3")
    assert "signal handler" in failure.hint


def test_an_error_of_the_engine_asks_nothing_of_the_project(tmp_path: Path) -> None:
    with engines.start(tmp_path) as engine:
        run(engine, "import torch\noutbox.send(None)")
        assert receive(engine, EngineFailed).hint == ""


@pytest.mark.parametrize("kind", ["TimeoutError", "KeyboardInterrupt"])
def test_what_a_signal_handler_raises_while_the_session_is_written_is_the_projects(tmp_path: Path, kind: str) -> None:
    with engines.start(tmp_path) as engine:
        run(
            engine,
            LATE.replace("TimeoutError", kind) + "import amptui.session.store\namptui.session.store.row_crc = late\n"
            "from amptui.protocol.events import StageStarted\n"
            f"try:\n    outbox.send(StageStarted(stage='trial'))\nexcept {kind}:\n"
            "    outbox.send(StageStarted(stage='trial'))",
        )
        refused = receive(engine, Refused)
        assert receive(engine, Goodbye).why == "refused"

    assert (refused.code, refused.where) == ("raises", "/project/train.py:3")
    assert refused.message == f"your code raised {kind} while amptui wrote the session: too slow"
    assert "signal handler" in refused.hint


def test_all_that_was_printed_comes_before_the_goodbye(tmp_path: Path) -> None:
    with engines.start(tmp_path) as engine:
        run(engine, "print('last words', end='')\ninbox.close('enough')")
        seen = []
        while not isinstance(event := engine.receive(5), Goodbye):
            seen.append(event)

    assert OutputCaptured(stream="stdout", text="last words") in seen
    assert event.why == "enough"


def test_an_engine_that_nobody_comes_back_to_ends(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path / "session")
    engine = engines.start(folder, arguments=["--patience", "0.3"])
    run(engine, "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)")
    sleeper = int(receive(engine, OutputCaptured).text)
    mark = engine._mark
    engine.close()
    assert engine._process._child is not None
    engine._process._child.wait(10)

    with Store.read(folder) as store:
        *_, last = history(store)
    assert isinstance(last.event, Goodbye)
    assert last.event.why.startswith("no client for")
    assert not engines.exists(sleeper)
    assert processes_of(mark) == []
    assert read_engine_file(folder) is None


def test_the_descriptors_of_the_engine_are_out_of_reach(tmp_path: Path) -> None:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with engines.start(tmp_path) as engine:
        run(
            engine,
            "import os, resource\nfrom amptui.protocol.events import Remarked\n"
            "held = sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n))\n"
            "outbox.send(Remarked(code=str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]), message=repr(held)))",
        )
        told = receive(engine, Remarked)

    low = [number for number in eval(told.message) if number < 4096]
    assert low[:3] == [0, 1, 2]
    assert len(low) == 3, "nothing of the engine's own lies where user code closes or opens files"
    assert int(told.code) == soft, "and the limit is as it was"


def test_low_hard_limits_are_lived_with() -> None:
    code = (
        "import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        "from amptui.engine.descriptors import *\n"
        "with out_of_reach() as lowest: opened = os.open('/dev/null', os.O_RDONLY)\n"
        "moved = moved_out_of_reach(os.open('/dev/null', os.O_RDONLY))\n"
        "print(lowest, opened >= lowest, moved >= lowest, os.open('/dev/null', os.O_RDONLY) < 10)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["128", "True", "True", "True"]


def test_descriptors_that_were_moved_are_not_passed_on() -> None:
    with out_of_reach() as lowest:
        inside = os.open(os.devnull, os.O_RDONLY)
    moved = moved_out_of_reach(os.dup(inside))

    assert min(inside, moved) >= lowest
    assert not os.get_inheritable(moved)
    os.close(inside)
    os.close(moved)


class TestEngineFile:
    def test_comes_back_as_it_was_and_knows_the_living(self, tmp_path: Path) -> None:
        folder = SessionFolder.create(tmp_path / "session")
        ours = EngineFile(
            pid=os.getpid(), start_ticks=process_start(os.getpid()), socket="/s", mark="m", amptui="0.1.0"
        )
        ours.write(folder)

        assert read_engine_file(folder) == ours
        assert ours.is_alive
        EngineFile.remove(folder)
        assert read_engine_file(folder) is None

    def test_is_not_fooled_by_another_process_with_the_number(self) -> None:
        child = subprocess.Popen(["sleep", "600"])
        start = process_start(child.pid)
        said = EngineFile(pid=child.pid, start_ticks=start, socket=None, mark="m", amptui="0")
        assert said.is_alive
        assert not EngineFile(pid=child.pid, start_ticks=start - 1, socket=None, mark="m", amptui="0").is_alive
        child.kill()
        assert engines.eventually(lambda: not said.is_alive), "not even while it waits to be collected"
        child.wait()

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": "x"}', "\xff"])
    def test_damaged_is_no_engine(self, tmp_path: Path, text: str) -> None:
        folder = SessionFolder.create(tmp_path / "session")
        (folder.path / "engine.json").write_text(text, encoding="latin-1")
        assert read_engine_file(folder) is None


def test_ending_processes_takes_those_with_the_mark_only(tmp_path: Path) -> None:
    marked = subprocess.Popen(["sleep", "600"], env={"AMPTUI_ENGINE": "aa11"}, start_new_session=True)
    stubborn = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo; sleep 600"],
        env={"AMPTUI_ENGINE": "aa11", "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
    )
    other = subprocess.Popen(["sleep", "600"], env={"AMPTUI_ENGINE": "aa111"})
    assert stubborn.stdout is not None
    stubborn.stdout.readline()

    assert end_processes("aa11", patience=0.2) >= 2  # the shell may have started its own child by now
    assert marked.wait(5) == -15
    assert stubborn.wait(5) == -9
    assert other.poll() is None
    other.kill()
    other.wait()
    stubborn.stdout.close()
