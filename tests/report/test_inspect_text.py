"""The printed page: what it says, that it fits, and that no string of a file reaches the terminal as it is."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from amptui.inspection.command import Answer
from amptui.inspection.compare import compare
from amptui.inspection.reading import inspect_path
from amptui.inspection.result import ScalerState
from amptui.report.inspect_text import growth_words, inspect_text, number_and_power
from tests.inspection.frameworks import LAYOUTS
from tests.inspection.writer import G, Obj, T, adam, save, scaler, weights


def page(path: Path, *, width: int = 80, ascii_only: bool = False) -> str:
    return inspect_text(Answer(inspections=(inspect_path(str(path)),)), width=width, ascii_only=ascii_only)


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (65536.0, "65536 = 2^16"),
        (1.0, "1 = 2^0"),
        (3000.0, "3000 ≈ 2^11.6"),
        (0.25, "0.25 = 2^-2"),
        (2.0**40, "1.09951e+12 = 2^40"),
        (0.0, "0"),
        (math.inf, "inf"),
        (-2.0, "-2"),
    ],
)
def test_scales_come_with_their_power(scale: float, said: str) -> None:
    assert number_and_power(scale) == said


@pytest.mark.parametrize(
    ("tracker", "interval", "said"),
    [
        (7, 2000, "grows after 1,993 more clean updates (7 of 2,000)"),
        (1999, 2000, "grows after 1 more clean update (1,999 of 2,000)"),
        (2000, 2000, "grows no more: tracker 2,000 of 2,000"),
        (5, None, "5 clean updates since it changed"),
        (-1, 2000, "tracker -1 of 2000"),
        (math.nan, 2000, "tracker nan of 2000"),
    ],
)
def test_what_the_tracker_means(tracker: float, interval: float | None, said: str) -> None:
    assert growth_words(ScalerState(path="", kind="GradScaler", growth_tracker=tracker, growth_interval=interval)) == [
        said
    ]


def test_a_page(tmp_path: Path) -> None:
    root = {"model": weights(), "optimizer": adam(95), "scaler": scaler(math.inf, 7), "global_step": 100}
    text = page(save(tmp_path / "x.pt", root))
    assert "plain PyTorch · zip" in text
    assert "loop 100 · optimizer 95 · 5 skipped" in text
    assert "✗ scaler: the scale is infinite" in text
    assert "Start a fresh GradScaler" in text
    assert "✓ optimizer" in text
    assert "✗ rng" in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_fits(name: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = LAYOUTS[name](tmp_path)[0].relative_to(tmp_path)
    text = page(path, width=width)
    longest = max(text.split("\n"), key=len)
    assert len(longest) <= width or " " not in longest.strip()


PAYLOADS = [
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x1b]52;c;aGk=\x07",
    "\x9b2J",
    "\x90q\x9c",
    "\u202etxt",
    "\u2066",
    "a\rb",
    "\x00",
    "\x7f",
    "\u2028",
]
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_string_of_the_file_reaches_the_terminal_raw(payload: str, tmp_path: Path) -> None:
    bad = {f"layer{payload}.weight": T([math.nan], (2,)), f"b{payload}": T()}
    root = {
        f"model{payload}": bad,
        f"scaler_{payload}": scaler(f"6{payload}5536"),
        "pytorch-lightning_version": f"2{payload}",
        "state_dict": weights(),
        "arch": Obj(f"os.sys{payload.replace(chr(10), '')}tem", (G(f"pkg.{payload}Net"),), call=True),
        "optimizer": adam(5),
        f"grad_scaler{payload}": scaler(0.0),
    }
    path = save(tmp_path / "x.pt", root)
    first = inspect_path(str(path))
    second = inspect_path(
        str(save(tmp_path / "y.pt", {**root, f"more{payload}": {"z": T()}, "state_dict": {payload: T()}}))
    )
    answer = Answer(inspections=(first, second), changes=compare(first, second))
    for ascii_only in (False, True):
        text = inspect_text(answer, ascii_only=ascii_only)
        assert first.has_fault
        assert _CONTROL.findall(text) == []
        assert not ascii_only or text.isascii()


def test_ascii(tmp_path: Path) -> None:
    text = page(save(tmp_path / "x.pt", {"model": weights(), "scaler": scaler(0.0), "né": T()}), ascii_only=True)
    assert text.isascii()
    assert "x scaler: the scale is zero" in text
    assert "+ model" in text


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    text = page(tmp_path / "nothing.pt")
    assert "✗ No such file or directory" in text
    assert "not a checkpoint" not in text, "nobody knows what it would have been"
