"""Hostile and broken files in numbers: nothing is executed, nothing goes uncaught, no limit is passed.

Each batch runs in processes of the reading child's own kind, where every attempt to import, execute, write or
connect raises; the number of files that really ran is part of every test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amptui.inspection import process
from tests.inspection.frameworks import LAYOUTS
from tests.inspection.hostile.gadgets import NAMES, by_new_object, gadget_files, harmless
from tests.inspection.hostile.mutations import mutants

_BATCH = Path(__file__).with_name("batch.py")
_CHILD = Path(process.__file__).with_name("child.py")
SECONDS, MEGABYTES = 5.0, 512


@pytest.fixture
def read_all(tmp_path: Path) -> Iterator[Callable[[list[Path]], list[dict[str, Any]]]]:
    """Reads files in one confined process and checks what has to hold for every file."""

    def read(paths: list[Path]) -> list[dict[str, Any]]:
        listed = tmp_path / "paths.json"
        listed.write_text(json.dumps([str(path) for path in paths]))
        command = [sys.executable, "-I", "-S", str(_BATCH), str(_CHILD), str(listed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=900)
        assert done.returncode == 0, done.stderr[-2000:]
        *answers, peak = map(json.loads, done.stdout.splitlines())
        assert [answer["path"] for answer in answers] == [str(path) for path in paths]
        assert [answer for answer in answers if answer["error"]] == []
        assert all(answer["printable"] for answer in answers)
        assert max(answer["seconds"] for answer in answers) < SECONDS
        assert peak["peak_kb"] < MEGABYTES * 1024
        return answers

    yield read
    assert not (tmp_path / "canary").exists()


def test_gadgets_are_named_dangerous_and_never_run(
    tmp_path: Path, read_all: Callable[[list[Path]], list[dict[str, Any]]]
) -> None:
    wanted = {}
    for name, dotted, data in gadget_files(str(tmp_path / "canary")):
        path = tmp_path / name
        path.write_bytes(data)
        wanted[path] = dotted
    answers = read_all(list(wanted))
    assert len(answers) >= 1000
    assert len(NAMES) >= 150
    for answer in answers:
        dotted = wanted[Path(answer["path"])]
        if by_new_object.__name__ in answer["path"] and "dangerous-code" not in answer["faults"]:
            # `cls.__new__` of another package's class runs nothing of it; the name is told all the same
            assert dotted in answer["needs_code"], answer
            continue
        assert "dangerous-code" in answer["faults"], answer
    path = tmp_path / "harmless.pt"
    path.write_bytes(harmless())
    assert read_all([path])[0]["faults"] == []


def corpus(folder: Path) -> list[bytes]:
    """Every different kind of file that the frameworks' layouts consist of."""
    found: dict[bytes, None] = {}
    for name, write in LAYOUTS.items():
        write(folder / name)
        for path in sorted((folder / name).rglob("*")):
            if path.is_file() and path.stat().st_size < 1 << 20:
                found[path.read_bytes()] = None
    return list(found)


def read_mutants(
    tmp_path: Path, read_all: Callable[[list[Path]], list[dict[str, Any]]], count: int, seed: int
) -> list[dict[str, Any]]:
    paths = []
    for index, data in enumerate(mutants(corpus(tmp_path / "corpus"), count, seed)):
        path = tmp_path / "mutants" / f"{index:06}.pt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        paths.append(path)
    return read_all(paths)


def test_mutated_files(tmp_path: Path, read_all: Callable[[list[Path]], list[dict[str, Any]]]) -> None:
    answers = read_mutants(tmp_path, read_all, 2400, seed=5)
    assert len(answers) >= 2000
    assert sum(bool(answer["faults"]) for answer in answers) > len(answers) / 2


def test_mutated_distributed_folders(tmp_path: Path, read_all: Callable[[list[Path]], list[dict[str, Any]]]) -> None:
    base, _ = LAYOUTS["dcp"](tmp_path / "good")
    metadata, shard = ((base / name).read_bytes() for name in (".metadata", "__0_0.distcp"))
    folders = []
    for index, (first, second) in enumerate(zip(mutants([metadata], 150, 1), mutants([shard], 150, 2), strict=True)):
        folder = tmp_path / f"step-{index}-of-many"
        folder.mkdir()
        (folder / ".metadata").write_bytes(first if index % 3 else metadata)
        (folder / "__0_0.distcp").write_bytes(second if index % 2 else shard)
        folders.append(folder)
    assert len(read_all(folders)) == 150


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_many_mutated_files(seed: int, tmp_path: Path, read_all: Callable[[list[Path]], list[dict[str, Any]]]) -> None:
    answers = read_mutants(tmp_path, read_all, 5000, seed=100 + seed)
    assert len(answers) >= 5000  # 20,000 over the four seeds
