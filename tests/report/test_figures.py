"""Figures: at most four significant digits, nothing that is not finite hidden, every sign of ours in plain ASCII."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amptui.report.figures import as_ascii, duration, figure, from_here, place, size, step_time


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0.123456, "0.1235"),
        (0.0003, "0.0003"),
        (0.000012345, "1.234e-5"),
        (65504.0, "6.55e4"),
        (1234.5, "1,234"),
        (9999.9, "10,000"),
        (1e30, "1e30"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (1234567, "1,234,567"),
        (True, "True"),
        (None, "none"),
        ("a\x1b[2J", r"a\x1b[2J"),
    ],
)
def test_figure(value: object, said: str) -> None:
    assert figure(value) == said


@given(st.floats(min_value=-1e308, max_value=1e308))
def test_a_figure_is_the_number_to_four_digits(value: float) -> None:
    said = figure(value)

    digits = re.sub(r"\D", "", said.partition("e")[0])
    assert len(digits.strip("0")) <= 4
    assert float(said.replace(",", "")) == pytest.approx(value, rel=5.1e-4)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (49_356, "48.2 KiB"),
        (3 * 2**20, "3.0 MiB"),
        (2**41, "2,048.0 GiB"),
    ],
)
def test_size(count: int, said: str) -> None:
    assert size(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.034, "0.034 s"), (9.96, "10 s"), (59.9, "60 s"), (200.0, "3 min 20 s"), (math.nan, "nan s")],
)
def test_duration(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_place_below_the_present_folder_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert place(f"{tmp_path}/train.py:7") == "train.py:7"
    assert place(f"{tmp_path}-other/train.py:7") == f"{tmp_path}-other/train.py:7"
    assert place(None) == ""


def test_our_own_signs_have_plain_lookalikes_and_foreign_letters_their_codes() -> None:
    assert as_ascii("2^16 → 2^14 · 0.1 × x … ─ ━ │ –") == "2^16 -> 2^14 | 0.1 x x ... - = | -"
    assert as_ascii("é") == r"\xe9"


def test_paths_in_a_sentence_are_relative_to_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"from there: mul in a ({tmp_path}/net.py:3) and add (/elsewhere/net.py:4)"
    monkeypatch.chdir(tmp_path)
    assert from_here(said) == "from there: mul in a (net.py:3) and add (/elsewhere/net.py:4)"
    monkeypatch.chdir("/")
    assert from_here(said) == said


@pytest.mark.parametrize(("seconds", "text"), [(0.002458, "2.458 ms"), (1.5, "1.5 s"), (0.9996, "999.6 ms")])
def test_the_time_of_a_step_is_the_same_on_screen_and_in_a_report(seconds: float, text: str) -> None:
    assert step_time(seconds) == text
