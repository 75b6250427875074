"""The command: exit codes, the JSON file, two checkpoints compared."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from amptui.cli import main
from amptui.inspection import command
from amptui.inspection.command import Answer, inspect, run
from amptui.inspection.compare import compare
from amptui.inspection.reading import inspect_path
from amptui.inspection.wire import packed, public, unpacked
from tests.inspection.frameworks import LAYOUTS
from tests.inspection.writer import T, adam, save, scaler, weights


def checkpoint(path: Path, **changes: object) -> Path:
    root = {"model": weights(), "optimizer": adam(90), "scaler": scaler(1024.0, 5), "global_step": 100}
    return save(path, {**root, **changes})


def ran(paths: list[Path], json_path: Path | None = None) -> tuple[int, Answer]:
    shown: list[Answer] = []
    code = run([str(path) for path in paths], None if json_path is None else str(json_path), False, shown.append)
    return code, shown[0]


def test_exit_codes(tmp_path: Path) -> None:
    clean, dead = checkpoint(tmp_path / "a.pt"), checkpoint(tmp_path / "b.pt", scaler=scaler(0.0))
    nothing = tmp_path / "nothing.pt"
    assert ran([clean])[0] == 0
    assert ran([dead])[0] == 1
    assert ran([nothing])[0] == 2
    assert ran([clean, clean])[0] == 0
    assert ran([clean, dead])[0] == 1
    assert ran([clean, nothing])[0] == 1
    assert ran([nothing, nothing])[0] == 2


def test_a_pipe_that_nobody_reads_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(command, "inspect", lambda *_, **__: pytest.fail("the checkpoint was read"))
    assert main(["inspect", str(checkpoint(tmp_path / "a.pt")), "--json", str(pipe)]) == 2
    assert "nobody reads this pipe" in capsys.readouterr().err


def test_the_reader_of_a_pipe_is_kept_until_the_json_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def reads(*paths: Any, **how: Any) -> Answer:
        with pytest.raises(BlockingIOError):  # no end in sight
            os.read(reader, 10)
        return inspect(*paths, **how)

    monkeypatch.setattr(command, "inspect", reads)
    assert main(["inspect", str(checkpoint(tmp_path / "a.pt")), "--json", str(pipe)]) == 0
    assert json.loads(os.read(reader, 1 << 20))["format"] == "plain"
    os.close(reader)


def test_the_json_file(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "a.pt", scaler=scaler(math.inf), model={"w": T([1.0, math.nan])})
    target = tmp_path / "out.json"
    ran([path], target)
    result = json.loads(target.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert {
        "format",
        "complete",
        "scaler",
        "steps",
        "dtypes",
        "nonfinite",
        "missing",
        "needs_code",
        "findings",
    } <= result.keys()
    assert result["scaler"][0]["scale"] == "inf"
    assert result["scaler"][0]["path"] == "scaler"
    assert (result["steps"]["loop"], result["steps"]["optimizer"], result["steps"]["skipped"]) == (100, 90, 10)
    assert result["nonfinite"] == ["model.w"]
    assert [finding["severity"] for finding in result["findings"]][:2] == ["fault", "fault"]
    assert {left.name for left in tmp_path.iterdir()} == {"a.pt", "out.json"}


def test_json_is_written_for_what_cannot_be_read(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    assert ran([tmp_path / "nothing"], target)[0] == 2
    result = json.loads(target.read_text())
    assert result["readable"] is False
    assert result["findings"][0]["severity"] == "fault"


def test_a_json_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "a.pt")
    with pytest.raises(OSError, match="No such file"):
        ran([path], tmp_path / "no" / "folder.json")


def test_two_checkpoints_in_json(tmp_path: Path) -> None:
    first, second = checkpoint(tmp_path / "a.pt"), checkpoint(tmp_path / "b.pt", scaler=scaler(64.0))
    ran([first, second], tmp_path / "out.json")
    result: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    assert result["scaler"][0]["scale"] == 1024.0
    assert result["second"]["scaler"][0]["scale"] == 64.0
    assert result["changes"][0]["what"] == "scale"


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_wire_keeps_everything(name: str, tmp_path: Path) -> None:
    found = inspect_path(str(LAYOUTS[name](tmp_path)[0]))
    again = unpacked(packed(found))
    assert packed(again) == packed(found)
    assert again.scalers == found.scalers
    assert again.tensors == found.tensors
    assert again.contents == found.contents
    json.dumps(public(found), allow_nan=False)


def changes(tmp_path: Path, **after: object) -> list[str]:
    first = inspect_path(str(checkpoint(tmp_path / "a.pt")))
    second = inspect_path(str(checkpoint(tmp_path / "b.pt", **after)))
    return [change.text for change in compare(first, second)]


def test_the_same_checkpoint_has_no_changes(tmp_path: Path) -> None:
    assert changes(tmp_path) == []


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"scaler": scaler(64.0)}, "scale 1024 → 64: at least 4 more overflows than growths"),
        ({"scaler": scaler(4096.0)}, "scale 1024 → 4096: grew at least 2 times"),
        ({"scaler": scaler(math.inf)}, "scale 1024 → inf"),
        ({"scaler": scaler(0.0)}, "scale 1024 → 0"),
        ({"scaler": scaler(1024.0, 205)}, "growth tracker 5 → 205"),
        ({"global_step": 200, "optimizer": adam(170)}, "20 of 100 updates between the two were skipped"),
        ({"global_step": 200}, "no update was taken in 100 loop steps"),
        (
            {"model": {**weights(), "bn.running_mean": T(math.nan)}},
            "1 tensor is no longer finite: model.bn.running_mean",
        ),
        ({"model": weights("float16")}, "2 tensors float32 → float16"),
        ({"model": {**weights(), "new": T()}}, "1 tensor is new: model.new"),
        ({"model": {"fc.weight": T(0.5, (3, 3))}}, "2 tensors are gone"),
        ({"model": {**weights(), "fc.weight": T(0.5, (3, 3))}}, "1 tensor has another shape"),
        ({"optimizer": None}, "no longer saved: optimizer"),
    ],
)
def test_what_happened_between_two_saves(after: dict[str, object], said: str, tmp_path: Path) -> None:
    assert any(said in text for text in changes(tmp_path, **after)), changes(tmp_path, **after)


def test_harm_comes_first(tmp_path: Path) -> None:
    first = inspect_path(str(checkpoint(tmp_path / "a.pt")))
    second = inspect_path(
        str(checkpoint(tmp_path / "b.pt", scaler=scaler(math.inf), global_step=101, optimizer=adam(91)))
    )
    marks = [change.bad for change in compare(first, second)]
    assert marks == sorted(marks, reverse=True)
    assert marks[0]


def test_what_could_not_be_read_is_not_compared(tmp_path: Path) -> None:
    answer = inspect([str(checkpoint(tmp_path / "a.pt")), str(tmp_path / "nothing")])
    assert answer.changes == ()
