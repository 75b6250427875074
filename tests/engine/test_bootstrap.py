"""The engine starts in another interpreter, which gets to know amptui and nothing else from where amptui lies."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from amptui.protocol.events import Goodbye, Refused
from amptui.session.folder import SessionFolder
from amptui.session.process import BOOTSTRAP, EngineProcess
from tests.session.engines import receive

ROOT = BOOTSTRAP.parents[2]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter whose environment holds no package at all."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, symlinks=True, with_pip=False)
    return folder / "bin" / "python"


def asked(python: Path, code: str, **environment: str) -> object:
    """What `code`, run by `python` after the bootstrap, prints as JSON."""
    read = f"import runpy, json, sys\nrunpy.run_path({str(BOOTSTRAP)!r}, run_name='__mp_main__')\n"
    done = subprocess.run(
        [python, "-c", read + code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=python.parent,
        check=True,
    )
    return json.loads(done.stdout)


def test_only_amptui_becomes_known(bare_python: Path) -> None:
    path, file = asked(
        bare_python, "import amptui.engine.main, amptui.spec\nprint(json.dumps([sys.path, amptui.__file__]))"
    )

    assert file == str(ROOT / "amptui" / "__init__.py")
    assert str(ROOT) not in path
    assert not [entry for entry in path if entry.startswith(str(ROOT))]


def test_the_project_finds_its_own_packages_not_the_clients(bare_python: Path, tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("mine = True")
    (tmp_path / "amptui").mkdir()
    (tmp_path / "amptui" / "__init__.py").write_text("raise ImportError('another amptui')")
    found = asked(
        bare_python,
        "import amptui, yaml, importlib.util as u\n"
        "print(json.dumps([yaml.mine, amptui.__file__, u.find_spec('textual'), u.find_spec('tests')]))",
        PYTHONPATH=str(tmp_path),
    )

    assert found == [True, str(ROOT / "amptui" / "__init__.py"), None, None]


def test_the_engines_side_needs_the_standard_library_only(bare_python: Path) -> None:
    """All that runs before torch is looked for."""
    loaded = asked(
        bare_python,
        "import amptui.engine.main, amptui.protocol.codec, amptui.session.store\n"
        "files = [m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)]\n"
        "print(json.dumps([f for f in files if 'site-packages' in f]))",
    )

    assert loaded == []


def test_its_own_folder_is_taken_from_the_path(bare_python: Path, tmp_path: Path) -> None:
    """Run by path, Python puts the file's folder first: `import output` would find the engine's module."""
    copy = tmp_path / "amptui"
    copy.mkdir()
    (copy / "__init__.py").touch()
    (copy / "engine").mkdir()
    (copy / "engine" / "__init__.py").touch()
    (copy / "engine" / "bootstrap.py").write_text(BOOTSTRAP.read_text())
    (copy / "engine" / "main.py").write_text(
        "import sys\ndef main(arguments):\n    print(__file__, arguments, *sys.path, sep='\\n')\n    return 5"
    )
    done = subprocess.run(
        [bare_python, copy / "engine" / "bootstrap.py", "--x"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )

    file, arguments, *path = done.stdout.splitlines()
    assert (done.returncode, file, arguments) == (5, str(copy / "engine" / "main.py"), "['--x']")
    assert not [entry for entry in path if entry.startswith(str(tmp_path))]


def test_an_interpreter_without_torch_is_refused(bare_python: Path, tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path / "session")
    with EngineProcess.start(bare_python, folder) as engine:
        refused = receive(engine, Refused)
        assert refused.code == "no-torch"
        assert str(bare_python) in refused.message, "the virtual environment's name, not what its link points to"
        assert "--python" in refused.hint
        assert receive(engine, Goodbye).why == "refused"


@pytest.mark.parametrize(
    ("torch", "code", "said"),
    [
        ("__version__ = '2.9.1+cu128'", "old-torch", "torch 2.9.1+cu128; amptui needs 2.10 or newer"),
        ("__version__ = 'unknown'", "old-torch", "torch unknown"),
        ("raise OSError('libcudart.so.12: no such file')", "no-torch", "OSError: libcudart.so.12"),
        ("import numpy_that_is_missing", "no-torch", "No module named 'numpy_that_is_missing'"),
    ],
)
def test_a_torch_that_cannot_serve_is_refused(
    bare_python: Path, tmp_path: Path, torch: str, code: str, said: str
) -> None:
    (tmp_path / "torch.py").write_text(torch)
    folder = SessionFolder.create(tmp_path / "session")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with EngineProcess.start(bare_python, folder, env=environment) as engine:
        refused = receive(engine, Refused)

    assert refused.code == code
    assert said in refused.message


def test_an_old_python_is_refused_in_the_protocol(tmp_path: Path) -> None:
    """An older interpreter than this one is played by its version number."""
    old = tmp_path / "old.py"
    old.write_text(
        "import runpy, sys\nsys.version_info = (3, 8, 19)\n"
        f"sys.modules['amptui'] = None\nrunpy.run_path({str(BOOTSTRAP)!r}, run_name='__main__')\n"
    )
    folder = SessionFolder.create(tmp_path / "session")
    with EngineProcess.start(sys.executable, folder, program=old) as engine:
        refused = receive(engine, Refused)
        assert receive(engine, Goodbye).why == "refused"

    assert refused.code == "old-python"
    assert "Python 3.8.19; amptui's engine needs 3.10 or newer" in refused.message


def test_the_file_itself_can_be_read_by_old_pythons() -> None:
    assert BOOTSTRAP.read_bytes().isascii()
    tree = ast.parse(BOOTSTRAP.read_text(), feature_version=(3, 4))
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef)

    assert not [node for node in ast.walk(tree) if isinstance(node, newer)]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.returns is not None]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]


def test_a_spawned_child_knows_amptui(bare_python: Path, tmp_path: Path) -> None:
    """What `multiprocessing` spawns reads the main file again, under another name."""
    copy = tmp_path / "program.py"
    copy.write_text(
        "import multiprocessing, sys\n"
        + BOOTSTRAP.read_text().partition("if __name__ ==")[0].replace("__file__", repr(str(BOOTSTRAP)))
        + "\ndef child(queue):\n    import amptui.project\n    queue.put(amptui.project.__file__)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n    queue = context.Queue()\n"
        "    process = context.Process(target=child, args=(queue,))\n    process.start()\n"
        "    print(queue.get(timeout=20))\n    process.join()\n"
    )
    done = subprocess.run([bare_python, copy], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == str(ROOT / "amptui" / "project.py")
