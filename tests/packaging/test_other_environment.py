"""amptui installed once, as a wheel and without torch, drives a project in another environment with another NumPy.

The other environment borrows this one's torch through a `.pth` file, so that nothing large is installed, and has a
NumPy of its own before it. Needs pip and a package index; skipped, with the reason, without them.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.commands import ROOT, documented

#: Packages that the client needs and the engine must not even find in the client's environment.
CLIENT_ONLY = ("textual", "rich", "yaml", "platformdirs")

PROJECT = '''
import json
import sys
from pathlib import Path

import numpy
import torch
import yaml  # the user's own, beside this file
from torch import nn
from torch.nn import functional as F

from amptui import Case, Project, Update

torch.set_num_threads(1)
HERE = Path(__file__).parent


def loss(model, batch):
    x, y = batch
    return F.cross_entropy(model(x), y)


def quality(rows):
    """Called last of all: whatever the engine imports has been imported by now."""
    origins = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    seen = {"path": sys.path, "modules": origins, "numpy": numpy.__version__, "executable": sys.executable}
    (HERE / "seen.json").write_text(json.dumps(seen))
    return 1.0


def project():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    x = torch.from_numpy(numpy.random.default_rng(0).standard_normal((4, 8, 4), dtype=numpy.float32))
    return Project(
        model=model,
        updates=[Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)],
        batches=[(rows, rows[:, :3].argmax(dim=1)) for rows in x],
        cases=[Case(id="first", inputs=x[0])],
        quality=quality,
    )
'''


@dataclass(frozen=True)
class Environment:
    """A virtual environment at `folder`."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        venv.create(folder, symlinks=True, with_pip=False)
        return cls(folder)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return next(self.folder.glob("lib/python*/site-packages"))


def pip(*arguments: object) -> None:
    """Runs pip; skips where there is none or where it reaches no index."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", timeout=150)
    if done.returncode == 0:
        return
    said = (done.stdout + done.stderr)[-2000:]
    if "No module named pip" in said:
        pytest.skip("this environment has no pip")
    if any(words in said for words in ("No matching distribution", "NewConnectionError", "ConnectTimeout", "Network")):
        pytest.skip(f"pip reaches no package index: {said.splitlines()[-1]}")
    pytest.fail(said)


def built_wheel(folder: Path) -> Path:
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    [wheel] = folder.glob("amptui-*.whl")
    return wheel


def client_environment(folder: Path, wheel: Path) -> Environment:
    """Where amptui is installed, as pipx or `uv tool` would: the wheel and what it depends on."""
    client = Environment.make(folder)
    pip("--python", client.python, "install", "--quiet", "--no-compile", wheel)
    return client


def project_environment(folder: Path) -> Environment:
    """Where the project trains: an older NumPy of its own, then this environment's torch."""
    project = Environment.make(folder / "venv")
    older = folder / "older-numpy"
    wanted = f"numpy>=2,<{importlib.metadata.version('numpy')}"
    pip("install", "--quiet", "--no-compile", "--no-deps", "--only-binary=:all:", "--target", older, wanted)
    borrowed = Path(torch.__file__).parents[1]
    (project.site_packages / "borrowed.pth").write_text(f"{older}\n{borrowed}\n")
    return project


def write_project(folder: Path) -> None:
    """The project, with files beside it that bear the names of amptui's own libraries."""
    folder.mkdir()
    (folder / "train.py").write_text(PROJECT)
    (folder / "amptui.yaml").write_text("entry: train.py:project\npolicy:\n  dtype: bfloat16\n")
    (folder / "yaml.py").write_text("mine = True\n")
    for name in ("textual", "rich", "platformdirs", "torch"):
        (folder / f"{name}.py").write_text(f"raise ImportError('{name}.py of the project was imported')\n")


def inside(path: str | None, environment: Environment) -> bool:
    return path is not None and Path(path).is_relative_to(environment.folder)


@pytest.mark.timeout(300)
def test_amptui_of_one_environment_drives_a_project_in_another(tmp_path: Path) -> None:
    wheel = built_wheel(tmp_path / "dist")
    assert_wheel_holds_the_package_alone(wheel)
    client = client_environment(tmp_path / "client", wheel)
    project = project_environment(tmp_path)
    folder = tmp_path / "project"
    write_project(folder)

    program = client.folder / "bin" / "amptui"
    command = [program, "check", "amptui.yaml", "--python", project.python, "--json", "out.json"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"AMPTUI_HOME": str(tmp_path / "sessions"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    result = documented((folder / "out.json").read_text(), 0)
    seen = json.loads((folder / "seen.json").read_text())
    assert_project_saw_its_own_environment(seen, result, project, folder)
    assert_nothing_came_from_the_client(seen, client)

    restored = subprocess.run([program, "restore", "last", "-o", "f.pt"], check=False, cwd=folder, env=environment)
    assert restored.returncode == 0  # without torch
    assert torch.load(folder / "f.pt", weights_only=True)["model"]["weight"].shape == (3, 4)


def assert_wheel_holds_the_package_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"amptui"}
    assert {"amptui/py.typed", "amptui/engine/bootstrap.py"} <= set(names)
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert len(needed) == len(CLIENT_ONLY)
    assert not any("torch" in line for line in needed)


def assert_project_saw_its_own_environment(
    seen: dict[str, Any], result: dict[str, Any], project: Environment, folder: Path
) -> None:
    assert seen["executable"] == str(project.python)
    assert seen["numpy"] == result["environment"]["numpy"] != importlib.metadata.version("numpy")
    assert "/older-numpy/" in seen["modules"]["numpy"]
    assert seen["modules"]["torch"] == torch.__file__
    assert seen["modules"]["yaml"] == str(folder / "yaml.py")


def assert_nothing_came_from_the_client(seen: dict[str, Any], client: Environment) -> None:
    assert [entry for entry in seen["path"] if inside(entry, client)] == []
    theirs = {name: origin for name, origin in seen["modules"].items() if inside(origin, client)}
    program = theirs["__main__"]  # the file that the interpreter runs; multiprocessing gives it a second name
    assert program.endswith("/amptui/engine/bootstrap.py")
    assert {name.partition(".")[0] for name, origin in theirs.items() if origin != program} == {"amptui"}
    assert not {name for name in CLIENT_ONLY if name != "yaml"} & seen["modules"].keys()
