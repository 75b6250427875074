"""The reading process: what it may take, what it may not do, and that every end of it is an answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from amptui.inspection import opening, process, reading
from amptui.inspection.opening import LimitError
from amptui.inspection.process import inspect_in_child
from amptui.inspection.result import Inspection
from tests.inspection.hostile.bombs import BOMBS
from tests.inspection.hostile.gadgets import _bare, _in_legacy, _in_zip, by_global, then_broken
from tests.inspection.writer import T, adam, save, scaler, torch_zip_bytes, weights

_CHILD = Path(process.__file__).with_name("child.py")


def codes(found: Inspection) -> list[str]:
    return [str(finding.facts["code"]) for finding in found.findings if finding.severity == "fault"]


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str, tmp_path: Path) -> None:
    """Each is answered by the child itself, within its limits, or ends at them."""
    path = tmp_path / "bomb.pt"
    path.write_bytes(BOMBS[name])
    found = inspect_in_child(str(path))
    assert not {"internal"} & set(codes(found)), found.findings
    for finding in found.findings:
        assert all(len(words) < 2000 for words in finding.evidence)


@pytest.mark.parametrize("payload", [by_global, then_broken])
@pytest.mark.parametrize("container", [_bare, _in_zip, _in_legacy])
def test_payloads_do_not_run_here_and_do_run_elsewhere(payload: object, container: object, tmp_path: Path) -> None:
    assert callable(payload)
    assert callable(container)
    canary = tmp_path / "canary"
    path = tmp_path / "payload.pt"
    path.write_bytes(container(payload("io", "open", str(canary))))
    found = inspect_in_child(str(path))
    assert "dangerous-code" in codes(found)
    assert found.dangerous == ("io.open",)
    assert not canary.exists()
    if container is _bare:  # the danger is real: Python's own unpickler runs it, even if it fails afterwards
        program = "import pickle, sys\ntry: pickle.load(open(sys.argv[1], 'rb'))\nexcept Exception: pass"
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        assert canary.exists()


FORBIDDEN = {
    "an import": "import antigravity",
    "code": "exec('1')",
    "compiling": "compile('1', '', 'eval')",
    "a shell": "os.system('true')",
    "a process": "os.fork()",
    "a program": "os.execv('/bin/true', ['true'])",
    "writing": "open(path, 'w')",
    "creating": "os.open(path, os.O_CREAT | os.O_WRONLY)",
    "removing": "os.remove(path)",
    "renaming": "os.rename(path, path + '1')",
    "a folder": "os.mkdir(path)",
    "a signal": "os.kill(1, 0)",
    "a socket": "_socket.socket()",
    "unpickling": "pickle.loads(b'cos\\nsystem\\n.')",
    "marshal": "marshal.loads(b'N')",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_child_refuses(what: str, tmp_path: Path) -> None:
    program = f"""
import _socket, marshal, os, pickle, runpy, sys
runpy.run_path({str(_CHILD)!r})["register_package"]()
from amptui.inspection import guard
path = {str(tmp_path / "new")!r}
code = compile({FORBIDDEN[what]!r}, "x", "exec")
run = exec
guard.confine(values=False)
sys.stdout.write("ready")
sys.stdout.flush()
try:
    function()
except guard.ForbiddenError:
    os._exit(7)
os._exit(0)
"""
    program = program.replace("run = exec", f"def function():\n    {FORBIDDEN[what]}")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("ready", 7), done.stderr
    assert list(tmp_path.iterdir()) == []


def limits(values: bool) -> Mapping[str, tuple[int, int]]:
    program = f"""
import json, resource, runpy
runpy.run_path({str(_CHILD)!r})["register_package"]()
from amptui.inspection import guard
guard.confine(values={values})
names = ["RLIMIT_DATA", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_CORE"]
print(json.dumps({{name: resource.getrlimit(getattr(resource, name)) for name in names}}))
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    found: Mapping[str, tuple[int, int]] = json.loads(done.stdout)
    return found


def test_the_childs_limits() -> None:
    found = limits(values=False)
    assert found["RLIMIT_DATA"] == [512 << 20, 512 << 20]
    assert found["RLIMIT_CPU"][0] == 5
    assert found["RLIMIT_CPU"][1] == 8
    assert found["RLIMIT_FSIZE"] == found["RLIMIT_CORE"] == [0, 0]
    assert limits(values=True)["RLIMIT_CPU"][0] == 5


def test_more_memory_than_allowed_is_refused() -> None:
    program = f"""
import runpy, sys
runpy.run_path({str(_CHILD)!r})["register_package"]()
from amptui.inspection import guard
guard.confine(values=False)
bytearray(400 << 20)
try:
    bytearray(600 << 20)
except MemoryError:
    sys.exit(7)
"""
    assert subprocess.run([sys.executable, "-I", "-S", "-c", program], check=False).returncode == 7


@pytest.mark.parametrize("error", [MemoryError(), LimitError("its structure takes too long")])
@pytest.mark.parametrize("place", ["read_file", "survey"])
def test_a_limit_that_is_reached_is_an_answer(
    error: BaseException, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spent(*_: object) -> None:
        raise error

    monkeypatch.setattr(opening if place == "read_file" else reading, place, spent)
    path = save(tmp_path / "x.pt", {"scaler": scaler()})
    if place == "survey" and isinstance(error, MemoryError):
        with pytest.raises(MemoryError):  # the child itself turns this into its answer
            reading.inspect_path(str(path))
        return
    found = reading.inspect_path(str(path))
    assert codes(found) == ["limit"]
    assert not found.complete


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Another program in the child's place."""
    path = tmp_path / "stand_in.py"
    path.write_text(f"import os, signal, sys, time\n{body}\n")
    monkeypatch.setattr(process, "_CHILD", path)


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "limit", "SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "limit", "too long or too much memory"),
        ("os.kill(os.getpid(), signal.SIGBUS)", "limit", "SIGBUS"),
        ("raise ValueError('odd')", "internal", "ValueError: odd"),
        ("sys.exit(0)", "internal", "failed to read"),
        ("time.sleep(60)", "limit", "too long"),
        ("os.write(1, b'S ')", "internal", "failed to read"),
    ],
)
def test_however_the_child_ends_there_is_an_answer(
    body: str, code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, body)
    found = inspect_in_child("x.pt", silence=1.0)
    assert not found.readable
    assert codes(found) == [code]
    assert said in found.findings[0].evidence[0]


def test_a_child_that_dies_while_values_are_read_leaves_the_structure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from amptui.inspection.wire import packed

    known = packed(Inspection(path="x.pt", format="plain", size=5))
    stand_in(tmp_path, monkeypatch, f"os.write(1, b'S ' + {known.encode()!r} + b'\\nP 1 5\\n'); os.abort()")
    told: list[object] = []
    found = inspect_in_child("x.pt", structure_done=told.append, progress=lambda *now: told.append(now))
    assert found.format == "plain"
    assert not found.complete
    assert codes(found) == ["limit"]
    assert "values were not read to the end" in found.findings[0].evidence[0]
    assert [type(item) for item in told] == [Inspection, tuple]


def test_values_of_a_large_checkpoint_come_after_its_structure(tmp_path: Path) -> None:
    path = tmp_path / "large.pt"
    large = T(shape=(18 << 20,), raw=bytes(72 << 20))
    path.write_bytes(torch_zip_bytes({"model": {"w": large, "v": T(float("nan"))}, "optimizer": adam(3)}))
    structure: list[Inspection] = []
    progress: list[tuple[int, int]] = []
    unasked = inspect_in_child(str(path), structure_done=structure.append)
    assert not structure
    assert not unasked.values_read
    assert unasked.nonfinite == ()
    assert unasked.steps.optimizer == 3
    found = inspect_in_child(
        str(path), values=True, structure_done=structure.append, progress=lambda *now: progress.append(now)
    )
    assert [item.values_read for item in structure] == [False]
    assert found.values_read
    assert found.nonfinite == ("model.v",)
    assert "model.w" in found.zero
    assert progress[-1][0] == progress[-1][1]


SHADOWS = [
    "amptui",
    "torch",
    "json",
    "zipfile",
    "pickle",
    "struct",
    "re",
    "dataclasses",
    "sitecustomize",
    "usercustomize",
    "numpy",
    "encodings",
    "typing",
]


def test_a_folder_full_of_traps_runs_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    save(tmp_path / "x.pt", {"scaler": scaler(2.0), "model": weights()})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "torch.py"))
    monkeypatch.setenv("PYTHONHOME", "")
    monkeypatch.setenv("PYTHONINSPECT", "1")
    found = inspect_in_child("x.pt")
    assert found.scalers[0].scale == 2.0
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["-h", "--", "a b\n.pt", "é\x1b[2J.pt", os.fsdecode(b"\xff\xfe.pt"), "x" * 250])
def test_any_file_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(torch_zip_bytes({"scaler": scaler()}))
    monkeypatch.chdir(tmp_path)
    found = inspect_in_child(name)
    assert found.path == name
    assert found.scalers[0].scale == 65536.0


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    path = save(tmp_path / "x.pt", {"scaler": scaler()})
    program = f"""
import sys
from amptui.inspection.command import run
code = run([{str(path)!r}], None, False, lambda answer: None)
heavy = {{"torch", "numpy", "textual", "rich", "yaml", "platformdirs", "pickle"}} & set(sys.modules)
readers = [name for name in sys.modules if name.startswith("amptui.inspection.containers")]
sys.exit(f"{{heavy}} {{readers}}" if heavy or readers else code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupted_wait_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); os.write(1, b'P 1 2\\n'); time.sleep(60)",
    )

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inspect_in_child("x.pt", progress=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIG_DFL)
