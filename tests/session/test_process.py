"""An engine is started, spoken to, watched and ended; however it dies, that is told and nothing stays behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amptui.protocol.commands import Close, Pause
from amptui.protocol.events import EngineFailed, Goodbye, OutputCaptured, Progressed, Refused, Remarked, StageStarted
from amptui.session.engine_file import processes_of, read_engine_file
from amptui.session.folder import SessionFolder
from amptui.session.history import history
from amptui.session.lock import lock_holder
from amptui.session.paths import create_session
from amptui.session.process import Detached, EngineDeath, EngineProcess, EngineUnavailable
from amptui.session.store import Store
from tests.session import engines
from tests.session.engines import eventually, exists, receive, run


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    return SessionFolder.create(tmp_path / "session")


@pytest.fixture
def engine(folder: SessionFolder) -> Iterator[EngineProcess]:
    with engines.start(folder) as engine:
        yield engine
    assert not exists(engine.pid)
    assert processes_of(engine._mark, engine.pid) == []
    assert lock_holder(folder) is None


def death_by(engine: EngineProcess, code: str) -> EngineDeath:
    run(engine, code)
    start = time.monotonic()
    death = receive(engine, EngineDeath)
    assert isinstance(death, EngineDeath)
    assert time.monotonic() - start < 5
    assert engine.receive(0) == death, "it stays dead"
    return death


class TestDeath:
    @pytest.mark.parametrize(
        ("code", "how", "said"),
        [
            ("os.kill(os.getpid(), 9)", "SIGKILL", "killed"),
            ("os.kill(os.getpid(), 11)", "SIGSEGV", "segmentation fault), at /project/train.py:1 in <module>"),
            ("os.abort()", "SIGABRT", "abort"),
            ("os.kill(os.getpid(), 7)", "SIGBUS", "bus error"),
            ("signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", "SIGTERM", "asked by another process"),
            ("os._exit(0)", "exit 0 without goodbye", "counted as a crash"),
            ("os._exit(7)", "exit code 7", "os._exit(7)"),
            ("sys.exit(3)", "exit code 70", "sys.exit(3)"),
            ("raise RuntimeError('no luck')", "exit code 70", "RuntimeError: no luck"),
        ],
    )
    def test_is_told_in_words(self, engine: EngineProcess, code: str, how: str, said: str) -> None:
        death = death_by(engine, f"import os, signal, sys; {code}")

        assert death.how == how
        assert said in death.words

    def test_comes_with_the_last_words(self, engine: EngineProcess) -> None:
        death = death_by(engine, "import os\nprint('almost')\nos.write(2, b'the end')\nos._exit(1)")

        assert sorted(death.last_output) == ["almost", "the end"]

    def test_of_a_crash_comes_with_the_stack(self, engine: EngineProcess) -> None:
        death = death_by(engine, "import os\ndef loss():\n    os.kill(os.getpid(), 11)\nloss()")

        assert "at /project/train.py:3 in loss" in death.words
        assert '  File "/project/train.py", line 3 in loss' in death.last_output

    def test_comes_after_all_that_was_sent_before(self, engine: EngineProcess) -> None:
        tell = "from amptui.protocol.events import Remarked\n"
        run(engine, tell + "for n in range(300): outbox.send(Remarked(code=str(n), message='x' * 2000))\n"
            "outbox.flush()\nimport os; os._exit(1)")  # fmt: skip

        codes = []
        while not isinstance(event := engine.receive(10), EngineDeath):
            assert isinstance(event, Remarked)
            codes.append(event.code)
        assert codes == [str(n) for n in range(300)]

    def test_of_user_code_that_calls_exit_names_the_line(self, engine: EngineProcess) -> None:
        run(engine, "import sys\n\nsys.exit('enough')")

        failure = receive(engine, EngineFailed)
        assert failure.message == "the project's code ended the process: sys.exit('enough')"
        assert failure.where == "/project/train.py:3"

    def test_by_exec_is_no_life(self, engine: EngineProcess) -> None:
        death = death_by(engine, "import os; os.execv('/bin/sleep', ['sleep', '600'])")

        assert death.how == "replaced"
        assert "sleep 600" in death.words
        engine.stop()
        assert not exists(engine.pid)

    def test_is_seen_although_a_forked_child_lives_on(self, engine: EngineProcess) -> None:
        death = death_by(engine, "import os, time\nif os.fork() == 0: time.sleep(600)\ntime.sleep(0.1); os._exit(5)")

        assert death.how == "exit code 5"

    def test_of_a_thread_of_user_code_is_none(self, engine: EngineProcess) -> None:
        run(engine, "import threading\nt = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()")

        assert receive(engine, StageStarted).stage == "report"
        assert "ZeroDivisionError" in receive(engine, OutputCaptured).text

    def test_of_a_forked_child_is_not_the_engines(self, engine: EngineProcess) -> None:
        run(engine, "import os\npid = os.fork()\nif pid == 0: raise RuntimeError('child')\nos.waitpid(pid, 0)")

        assert receive(engine, StageStarted).stage == "report"
        assert engine.alive

    @pytest.mark.parametrize("has_pidfd", [True, False])
    def test_is_seen_with_and_without_pidfd(
        self, folder: SessionFolder, monkeypatch: pytest.MonkeyPatch, *, has_pidfd: bool
    ) -> None:
        if not has_pidfd:
            monkeypatch.delattr(os, "pidfd_open")
        with engines.start(folder) as engine:
            assert death_by(engine, "import os; os._exit(9)").how == "exit code 9"


class TestUserCode:
    def test_that_closes_every_descriptor_breaks_nothing(self, engine: EngineProcess, folder: SessionFolder) -> None:
        run(
            engine,
            "import os\nos.closerange(0, 4096)\n"
            "taken = [os.open('/dev/null', os.O_RDWR) for _ in range(40)]\n"
            "from amptui.protocol.events import Remarked\n"
            "outbox.send(Remarked(code='still', message='here'))",
        )

        assert receive(engine, Remarked).code == "still"
        engine.stop()
        assert engine.goodbye == Goodbye(why="asked to")
        with Store.read(folder) as store:
            kinds = [type(envelope.event).__name__ for envelope in history(store)]
        assert kinds == ["StageStarted", "Remarked", "StageStarted", "Goodbye"]

    def test_that_prints_what_looks_like_the_protocol_is_only_output(self, engine: EngineProcess) -> None:
        line = '{"seq": 99, "time": 1.0, "event": {"kind": "Goodbye", "why": "fake"}}'
        run(engine, f"print('''{line}''')")

        assert receive(engine, OutputCaptured).text == line + "\n"
        assert engine.goodbye is None

    def test_escape_sequences_and_broken_utf8_arrive_as_they_are(self, engine: EngineProcess) -> None:
        run(engine, r"import os; os.write(1, b'\x1b]0;title\x07\xff\xc3'); os.write(1, b'\xa9\n')")

        assert receive(engine, OutputCaptured).text == "\x1b]0;title\x07\\xffé\n"

    def test_a_flood_of_output_costs_neither_memory_nor_disk(
        self, engine: EngineProcess, folder: SessionFolder
    ) -> None:
        before = resident(engine.pid)
        run(
            engine,
            "line = 'x' * 999 + '\\n'\nimport sys\nfor _ in range(100): sys.stdout.write(line * 1000)\nprint('end')",
        )

        text = ""
        while "end\n" not in text:
            text += receive(engine, OutputCaptured).text
        assert "left out here" in text
        assert len(text) < 10_000_000
        assert peak(engine.pid) - before < 64_000
        assert sum(file.stat().st_size for file in folder.path.glob("output.log*")) <= 8 * 2**20

    def test_input_is_at_its_end(self, engine: EngineProcess) -> None:
        run(engine, "try: input()\nexcept EOFError: print('nothing to read')")

        assert receive(engine, OutputCaptured).text == "nothing to read\n"


class TestStop:
    def test_ends_with_a_goodbye(self, engine: EngineProcess) -> None:
        engine.stop()

        assert engine.receive(0) == Goodbye(why="asked to")
        assert engine.receive(0) is None
        assert engine.receive() is None, "and does not wait for what cannot come"
        engine.stop()

    @pytest.mark.parametrize(
        "code", ["while True: pass", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
    )
    def test_ends_what_does_not_listen(self, engine: EngineProcess, code: str) -> None:
        run(engine, f"from amptui.protocol.events import Remarked\noutbox.send(Remarked(code='', message=''))\n{code}")
        receive(engine, Remarked)
        engine.stop(patience=0.2)

        assert not exists(engine.pid)

    def test_leaves_nothing_that_user_code_started(self, engine: EngineProcess) -> None:
        run(
            engine,
            "import subprocess, os\n"
            "group = subprocess.Popen(['sleep', '601'])\n"
            "away = subprocess.Popen(['sleep', '602'], start_new_session=True)\n"
            "daemon = subprocess.run(['sh', '-c', 'setsid sleep 603 >/dev/null 2>&1 & echo $!'], capture_output=True)\n"
            "print(group.pid, away.pid, int(daemon.stdout))",
        )
        pids = [int(pid) for pid in receive(engine, OutputCaptured).text.split()]
        assert all(map(exists, pids))
        engine.stop()

        assert not any(map(exists, pids))

    def test_lets_exit_handlers_run_but_not_for_ever(self, engine: EngineProcess, tmp_path: Path) -> None:
        flag = tmp_path / "ran"
        run(
            engine,
            f"import atexit, pathlib, threading, time\natexit.register(pathlib.Path({str(flag)!r}).touch)\n"
            "from amptui.engine import main; main.ENDING_S = 0.5",
        )
        receive(engine, StageStarted)
        engine.stop()
        assert flag.exists()

    def test_does_not_wait_for_a_thread_that_never_ends(self, engine: EngineProcess) -> None:
        run(
            engine,
            "import threading, time\nfrom amptui.engine import main; main.ENDING_S = 0.2\n"
            "threading.Thread(target=time.sleep, args=(600,)).start()",
        )
        receive(engine, StageStarted)
        engine.send(Close())
        assert receive(engine, Goodbye).why == "asked to"
        assert eventually(lambda: not exists(engine.pid), timeout=3)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_signals_end_it_with_a_goodbye(self, engine: EngineProcess, number: signal.Signals) -> None:
        os.kill(engine.pid, number)

        assert receive(engine, Goodbye).why == f"signal {number.name}"

    def test_and_start_twenty_times_leave_no_descriptor_and_no_process(self, folder: SessionFolder) -> None:
        engines.start(folder).stop()
        before = open_descriptors()
        marks = []
        for _ in range(20):
            with engines.start(folder) as engine:
                marks.append((engine._mark, engine.pid))

        assert open_descriptors() == before
        assert [processes_of(*mark) for mark in marks] == [[]] * 20
        assert read_engine_file(folder) is None
        assert not list(sockets_of(pid for _, pid in marks))


class TestClients:
    def test_that_does_not_read_holds_nothing_up(self, engine: EngineProcess, folder: SessionFolder) -> None:
        run(
            engine,
            "from amptui.protocol.events import Progressed, Remarked\nimport time\nstart = time.monotonic()\n"
            "for n in range(20_000): outbox.send(Progressed(stage='trial', what='x' * 200, done=n, total=20_000))\n"
            "outbox.send(Remarked(code='took', message=str(time.monotonic() - start)))",
        )
        time.sleep(2)
        seen = []
        while not isinstance(event := engine.receive(10), Remarked):
            if isinstance(event, Progressed):
                seen.append(event.done)
        assert engine.dropped > 0
        assert engine.dropped + len(seen) == 20_000
        assert seen == sorted(seen)
        engine.stop()
        with Store.read(folder) as store:
            recorded = [envelope for envelope in history(store) if isinstance(envelope.event, Progressed)]
        assert len(recorded) == 20_000, "the store has what the line left out"

    def test_that_leave_are_waited_for_and_the_next_reads_on(self, folder: SessionFolder) -> None:
        first = engines.start(folder)
        run(
            first,
            "from amptui.protocol.events import *\nfor n in range(5): outbox.send(Remarked(code=str(n), message=''))",
        )
        for _ in range(3):
            receive(first, Remarked)
        first.close()

        with EngineProcess.attach(folder) as second:
            assert second.history is not None
            with Store.read(folder) as store:
                seen = list(history(store, up_to=second.history))
            numbers = [envelope.seq for envelope in seen]
            run(second, "from amptui.protocol.events import *\noutbox.send(Remarked(code='live', message=''))")
            while receive(second, Remarked | StageStarted) != Remarked(code="live", message=""):
                numbers.append(second.last_seq)
            assert numbers == list(range(second.last_seq)), "nothing is missing between the store and the line"
            assert second.pid == first.pid
        reap(first)
        assert not exists(first.pid)

    def test_that_are_killed_leave_the_engine_waiting(self, folder: SessionFolder) -> None:
        script = (
            "import sys, time; from pathlib import Path; from tests.session import engines\n"
            "from amptui.session.folder import SessionFolder\n"
            "engine = engines.start(SessionFolder.open(Path(sys.argv[1])))\n"
            "print(engine.pid, flush=True); time.sleep(600)"
        )
        client = subprocess.Popen(
            [sys.executable, "-c", script, str(folder.path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        client.kill()
        client.communicate()

        assert exists(pid)
        with attached(folder) as engine:
            assert engine.pid == pid
            run(engine, "print('I am here')")
            assert receive(engine, OutputCaptured).text == "I am here\n"
        assert not exists(pid)

    def test_that_leave_end_an_engine_that_is_told_to_stop_then(self, folder: SessionFolder) -> None:
        engine = engines.start(folder, on_disconnect="stop")
        engine.close()

        reap(engine)
        with Store.read(folder) as store:
            *_, last = history(store)
        assert last.event == Goodbye(why="the client is gone")
        assert lock_holder(folder) is None

    def test_that_leave_pause_what_runs(self, folder: SessionFolder) -> None:
        engine = engines.start(folder)
        run(engine, "import time\nwhile not inbox.pause_asked: time.sleep(0.01)\n"
            "from amptui.protocol.events import *; outbox.send(Remarked(code='paused', message=''))")  # fmt: skip
        engine.close()
        with attached(folder) as second, Store.read(folder) as store:
            assert eventually(lambda: any(isinstance(e.event, Remarked) for e in history(store)))
            assert second.alive
        reap(engine)

    def test_that_come_second_are_turned_away_by_name(self, engine: EngineProcess, folder: SessionFolder) -> None:
        with pytest.raises(EngineUnavailable, match=f"process {os.getpid()} is attached"):
            EngineProcess.attach(folder)

        run(engine, "print('undisturbed')")
        assert receive(engine, OutputCaptured).text == "undisturbed\n"

    def test_that_come_second_are_told_how_to_take_over_and_which_other_engines_live(
        self, engine: EngineProcess, folder: SessionFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AMPTUI_HOME", str(tmp_path / "home"))
        over = re.escape(f"amptui attach --take-over {folder.path}")
        with pytest.raises(EngineUnavailable, match=f"{over}$"):
            EngineProcess.attach(folder)
        ended, other = create_session("ended"), create_session("other")
        with engines.start(other), pytest.raises(EngineUnavailable, match=f"amptui attach {other.session_id}") as why:
            EngineProcess.attach(folder)
        assert ended.session_id not in str(why.value)

    def test_that_take_over_put_the_first_one_out(self, engine: EngineProcess, folder: SessionFolder) -> None:
        second = EngineProcess.attach(folder, take_over=True)

        with pytest.raises(Detached, match="took over"):
            engine.receive(5)
        run(second, "print('for you')")
        assert receive(second, OutputCaptured).text == "for you\n"
        engine.stop()
        assert second.alive, "the one that was put out has no say any more"
        second.stop()

    def test_that_speak_nonsense_are_hung_up_on(self, engine: EngineProcess, folder: SessionFolder) -> None:
        engine._connection.send("nonsense")
        with pytest.raises(Detached, match="not understood"):
            engine.receive(5)

        with attached(folder) as second:
            assert second.alive

    def test_that_only_connect_are_not_clients(self, engine: EngineProcess, folder: SessionFolder) -> None:
        said = read_engine_file(folder)
        assert said is not None
        assert said.socket is not None
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(said.socket)
            stranger.sendall(b'{"kind": "Close"}\n')
            assert b"no greeting came" in stranger.recv(1000)
        assert engine.alive

    def test_cannot_attach_where_no_engine_lives(self, folder: SessionFolder) -> None:
        with pytest.raises(EngineUnavailable, match="no engine runs"):
            EngineProcess.attach(folder)
        engine = engines.start(folder)
        run(engine, "import os; os.kill(os.getpid(), 9)")
        assert eventually(lambda: not engine.alive)
        with pytest.raises(EngineUnavailable, match="no engine runs"):
            EngineProcess.attach(folder)
        engine.stop()

    def test_of_an_engine_that_they_did_not_start_learn_of_its_death_too(self, folder: SessionFolder) -> None:
        first = engines.start(folder)
        first.close()
        with attached(folder) as second:
            run(second, "import os; print('the last words'); os._exit(3)")
            death = receive(second, EngineDeath)
        assert isinstance(death, EngineDeath)
        assert (death.how, death.last_output) == ("gone", ("the last words",))
        reap(first)


class TestStart:
    def test_returns_before_the_interpreter_is_up(self, folder: SessionFolder) -> None:
        engine = EngineProcess.start(sys.executable, folder, program=engines.PROGRAM)
        engine.send(Pause())
        assert engine.history is None
        receive(engine, StageStarted)
        assert engine.history == -1
        engine.stop()

    def test_of_a_second_engine_in_a_session_is_refused(self, engine: EngineProcess, folder: SessionFolder) -> None:
        second = EngineProcess.start(sys.executable, folder, program=engines.PROGRAM)
        refused = receive(second, Refused)

        assert (refused.code, f"process id {engine.pid}" in refused.message) == ("session", True)
        assert isinstance(second.receive(5), Goodbye)
        second.stop()
        assert engine.alive
        assert read_engine_file(folder) is not None, "the first one's file is left alone"

    def test_continues_the_sessions_numbering(self, folder: SessionFolder) -> None:
        with engines.start(folder) as engine:
            pass
        last = engine.last_seq
        with engines.start(folder) as engine:
            assert engine.history == last
            assert engine.last_seq == last + 1

    @pytest.mark.parametrize("python", ["/nowhere/python", "no-such-python", "/etc/passwd"])
    def test_of_no_interpreter_is_refused(self, folder: SessionFolder, python: str) -> None:
        with pytest.raises(EngineUnavailable, match=python):
            EngineProcess.start(python, folder)

    def test_of_something_else_is_a_death_with_its_words(self, folder: SessionFolder, tmp_path: Path) -> None:
        fake = tmp_path / "python"
        fake.write_text("#!/bin/sh\necho 'I am a shell' >&2\nexit 4\n")
        fake.chmod(0o700)
        with EngineProcess.start(fake, folder) as engine:
            death = receive(engine, EngineDeath)
        assert isinstance(death, EngineDeath)
        assert (death.how, death.last_output) == ("exit code 4", ("I am a shell",))

    def test_gives_the_engine_nothing_of_the_clients_python(
        self, folder: SessionFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONINSPECT", "1")
        monkeypatch.setenv("__PYVENV_LAUNCHER__", "/client/python")
        monkeypatch.setenv("PYTHONPATH", "/users/own")
        with engines.start(folder) as engine:
            run(engine, "import os; print(sorted(set(os.environ) & "
                "{'PYTHONINSPECT', '__PYVENV_LAUNCHER__', 'PYTHONPATH'}), os.getsid(0) == os.getpid())")  # fmt: skip
            assert receive(engine, OutputCaptured).text == "['PYTHONPATH'] True\n"


def attached(folder: SessionFolder) -> EngineProcess:
    """Attaches as soon as the engine has noticed that its client is gone."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return EngineProcess.attach(folder)
        except EngineUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def reap(engine: EngineProcess) -> None:
    """Collects the child of a client object that has let go of its engine."""
    assert engine._process._child is not None
    engine._process._child.wait(10)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident(pid: int) -> int:
    return _status(pid, "VmRSS")


def peak(pid: int) -> int:
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    """A figure of /proc/PID/status in kB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def sockets_of(pids: Iterator[int]) -> Iterator[Path]:
    from amptui.protocol.channel import runtime_folder

    for pid in pids:
        yield from runtime_folder().glob(f"{pid}-*.sock")
