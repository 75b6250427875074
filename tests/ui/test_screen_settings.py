"""The configuration file of the screen: read strictly, overridden by options."""

from __future__ import annotations

from pathlib import Path

import pytest

from amptui.spec.error import SpecError
from amptui.ui.inspect.keys import INSPECT_KEYS
from amptui.ui.keys import rebind_own
from amptui.ui.screen_settings import THEME_NAMES, ScreenSettings, read_screen_settings
from amptui.ui.theme import THEMES


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def test_no_file_and_an_empty_one_leave_everything_to_the_terminal(tmp_path: Path) -> None:
    assert read_screen_settings(tmp_path / "none.yaml") == ScreenSettings()
    assert read_screen_settings(written(tmp_path, "# nothing\n")) == ScreenSettings()


def test_theme_marks_mouse_rate_and_keys_are_read(tmp_path: Path) -> None:
    text = "theme: light\nascii: true\nmouse: false\npaints: 4\nkeys:\n  phase: P\n  copy: y, ctrl+y\n"
    settings = read_screen_settings(written(tmp_path, text))
    assert settings == ScreenSettings(
        theme="light", ascii=True, mouse=False, paints=4.0, keys={"phase": "P", "copy": "y, ctrl+y"}
    )
    keys = {key.id: key.keys for key in settings.bindings()}
    assert keys["phase"] == ("P",)
    assert keys["copy"] == ("y", "ctrl+y")


def test_keys_of_either_screen_can_be_bound_otherwise(tmp_path: Path) -> None:
    settings = read_screen_settings(written(tmp_path, "keys:\n  next_bad: N\n  phase: P\n"))
    assert {key.id: key.keys for key in rebind_own(INSPECT_KEYS, settings.keys)}["next_bad"] == ("N",)
    assert {key.id: key.keys for key in settings.bindings()}["phase"] == ("P",)
    with pytest.raises(SpecError, match=r"bound to both.*screen of amptui inspect"):
        read_screen_settings(written(tmp_path, "keys:\n  next_bad: v\n"))
    with pytest.raises(SpecError, match="no key binding “fly”"):
        ScreenSettings(keys={"fly": "x"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("thema: light\n", "config.yaml:1:1.*unknown key 'thema'"),
        ("ascii: maybe\n", "write true or false"),
        ("keys:\n  fly: x\n", "config.yaml:2:3.*unknown key"),
        ("keys:\n  phase: n\n", "bound to both"),
        ("keys:\n  phase: ctrl+m\n", "terminals send it as enter"),
        ("theme: pink\n", "no theme “pink”"),
        ("paints: 0\n", "paints"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        read_screen_settings(written(tmp_path, text))


def test_the_themes_are_those_that_there_are() -> None:
    assert THEME_NAMES == THEMES


def test_options_override_the_file() -> None:
    base = ScreenSettings(theme="light", paints=4.0, keys={"phase": "P"})
    over = base.overridden_by(ScreenSettings(theme="dark", keys={"copy": "ctrl+y"}))
    assert (over.theme, over.paints, over.keys) == ("dark", 4.0, {"phase": "P", "copy": "ctrl+y"})
