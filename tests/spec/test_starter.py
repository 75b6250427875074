"""`amptui new FILE` writes a project that runs as it is, trains without amptui, and overwrites nothing."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amptui.project import Project
from amptui.spec.error import SpecError
from amptui.spec.reference import parse_reference
from amptui.spec.resolve import load_project
from amptui.spec.starter import write_starter


@contextmanager
def refused(said: str) -> Iterator[None]:
    with pytest.raises(SpecError) as caught:
        yield
    assert caught.value.code == "starter"
    assert said in str(caught.value)


def test_the_starter_trains_plainly_without_amptui(tmp_path: Path) -> None:
    write_starter(tmp_path / "train_amp.py")
    script = "import runpy, sys; sys.modules['amptui'] = None; runpy.run_path('train_amp.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    losses = [float(line.rpartition(" ")[2]) for line in done.stdout.splitlines()]
    assert len(losses) == 5
    assert losses[-1] < losses[0] / 2


def test_the_starter_is_a_project_whose_functions_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    request.addfinalizer(lambda: sys.modules.pop("starter_of_a_test", None))
    write_starter(tmp_path / "starter_of_a_test.py")
    reference = parse_reference("starter_of_a_test.py:project", folder=tmp_path)
    project = load_project(reference, {}, folder=tmp_path).project
    assert isinstance(project, Project)
    [update], batches, cases = project.updates, list(project.batches), list(project.cases)  # type: ignore[arg-type]
    assert update.loss(project.model, batches[0]).isfinite()  # type: ignore[union-attr]
    assert len({case.id for case in cases}) == len(cases) == 16
    assert project.decide is not None
    assert project.decide(project.model(cases[0].inputs)) in (0, 1, 2)  # type: ignore[operator]


def test_the_starter_is_short_commented_and_needs_torch_only(tmp_path: Path) -> None:
    write_starter(tmp_path / "train_amp.py")
    text = (tmp_path / "train_amp.py").read_text()
    assert "amptui check train_amp.py:project" in text
    assert len([line for line in text.splitlines() if line.strip()]) <= 40
    tops = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in tops if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in tops if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} == {"torch"}


@pytest.mark.parametrize("name", ["train_amp.py", "braces{0}x.py"])
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text("mine")
    with refused("exists already; choose another name; nothing was written"):
        write_starter(file)
    assert file.read_text() == "mine"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target.py"
    (tmp_path / "link.py").symlink_to(target)
    with refused("exists already"):
        write_starter(tmp_path / "link.py")
    assert not target.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("train", "'train' does not end in .py"),
        ("train.txt", "does not end in .py"),
        ("my-train.py", "'my-train' is no name that Python can import"),
        ("class.py", "'class' is no name"),
        ("1st.py", "'1st' is no name"),
        ("random.py", "would hide the module 'random'"),
        ("torch.py", "would hide the module 'torch'"),
        ("amptui.py", "would hide the module 'amptui'"),
        ("nowhere/train.py", "there is no folder"),
        ("file.txt/train.py", "cannot be written: Not a directory"),
        ("x" * 300 + ".py", "cannot be written: File name too long"),
        ("\x1b[2J/a\x00.py", "is no name"),
        ("\x00/a.py", "cannot be written"),
        ("a\x1b.py", "'a\\x1b' is no name"),
    ],
)
def test_a_file_that_cannot_be_is_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file.txt").write_text("")
    with refused(said):
        write_starter(tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def write(self, text: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full(handle: int, *_: object, **__: object) -> Full:
        os.close(handle)
        return Full()

    monkeypatch.setattr(os, "fdopen", open_full)
    with refused("cannot be written: No space left on device"):
        write_starter(tmp_path / "train_amp.py")
    assert not (tmp_path / "train_amp.py").exists()
