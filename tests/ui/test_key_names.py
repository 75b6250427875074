"""Sentences name keys as they are bound."""

from __future__ import annotations

import pytest

from amptui.ui.key_names import KeyNames
from amptui.ui.keys import KEYS, rebind
from amptui.ui.raster.glyphs import ASCII

BOUND = KeyNames(rebind(KEYS, {"proceed": "B, c", "filter": "ctrl+f"}), ASCII)


def test_a_key_stands_for_its_id_and_is_the_first_of_those_that_are_bound() -> None:
    assert KeyNames().say("{proceed} runs, {back} leaves, {filter} filters.") == "c runs, q leaves, / filters."
    assert BOUND.say("{proceed} runs, {filter} filters.") == "B runs, ctrl+f filters."
    assert BOUND.key("fall_back") == "F"


def test_braces_in_what_a_project_said_are_only_braces() -> None:
    assert BOUND.say("{hint} {proceed} runs.", hint="{proceed} {0}") == "{proceed} {0} B runs."


def test_a_key_that_does_not_exist_is_an_error_of_the_sentence() -> None:
    with pytest.raises(KeyError):
        BOUND.say("{procede} runs")
