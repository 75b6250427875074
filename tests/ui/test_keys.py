"""Keys are data: rebindable, without collisions, and the footer, help and documentation come from them."""

from __future__ import annotations

import pytest

from amptui.ui.inspect.keys import INSPECT_KEYS
from amptui.ui.keys import KEYS, footer, help_lines, keymap, markdown, rebind, shown, textual_bindings
from amptui.ui.raster.glyphs import ASCII
from amptui.ui.raster.line import plain, width_of

HERE = {"phase", "iteration", "proceed", "until", "diagnose", "fall_back", "help", "back"}

#: The contract with users: these keys do this.
CONTRACT = {
    "s": "phase",
    "n": "iteration",
    "c": "proceed",
    "u": "until",
    "space": "pause",
    "F": "fall_back",
    "d": "diagnose",
    "o": "output",
    "z": "zoom",
    "/": "filter",
    "y": "copy",
    "e": "edit",
    "?": "help",
    "F1": "help",
    "q": "back",
    "esc": "back",
    "ctrl+p": "command_palette",
    **{str(stage): f"stage_{stage}" for stage in range(1, 8)},
}


def test_the_promised_keys_do_what_is_promised() -> None:
    owners = {shown(name): key.id for key in KEYS for name in key.keys}
    assert {name: owners[name] for name in CONTRACT} == CONTRACT


def test_ids_are_unique_no_key_is_bound_twice_and_none_is_lost_in_tmux() -> None:
    assert len({key.id for key in KEYS}) == len(KEYS)
    names = [name for key in KEYS for name in key.keys]
    assert len(set(names)) == len(names)
    assert not {"ctrl+a", "ctrl+b", "ctrl+m", "ctrl+i", "ctrl+h", "ctrl+enter", "shift+enter"} & set(names)


def test_rebinding_changes_one_key_and_everything_made_from_it() -> None:
    keys = rebind(KEYS, {"phase": "P", "filter": "/, ctrl+f"})
    assert plain(footer(keys, HERE, 100)).startswith(" P phase ")
    assert keymap(keys) == {"phase": "P", "filter": "slash,ctrl+f"}
    assert "| `P` | advance one phase |" in markdown(keys)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"fly": "x"}, "no key binding “fly”"),
        ({"phase": " , "}, "has no key"),
        ({"phase": "ctrl+m"}, "terminals send it as enter"),
        ({"phase": "n"}, "bound to both “phase” and “iteration”"),
        ({"phase": "F5"}, "Write “f5”"),
        ({"phase": "Space"}, "Write “space”"),
        ({"phase": "shift+s"}, "Write “S”"),
        ({"phase": "ctrl+S"}, "Write “ctrl\\+s”"),
        ({"phase": "ctrl+"}, "is no key's name"),
        ({"phase": "foo"}, "Keys are written as"),
    ],
)
def test_a_binding_that_cannot_work_is_refused_with_the_reason(wanted: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        rebind(KEYS, wanted)


def test_every_declared_key_could_be_written_and_one_that_is_named_twice_is_one() -> None:
    for key in (*KEYS, *INSPECT_KEYS):
        for name in key.keys:
            if name not in {other for one in (*KEYS, *INSPECT_KEYS) if one is not key for other in one.keys}:
                assert rebind([key], {key.id: name})[0].keys == (name,)
                assert rebind([key], {key.id: shown(name)})[0].keys == (name,)
    assert rebind(KEYS, {"phase": "P, P"})[0].keys == ("P",)


def test_the_footer_keeps_the_way_out_and_the_order_where_room_is_short() -> None:
    assert (
        plain(footer(KEYS, HERE, 80)).rstrip()
        == " s phase  n next  c continue  u until…  d diagnose  F fall back  ? help  q back"
    )
    narrow = plain(footer(KEYS, HERE, 30)).split()
    assert narrow == ["F", "fall", "back", "?", "help", "q", "back"]
    assert all(width_of(footer(KEYS, HERE, width)) == width for width in range(120))


def test_the_footer_shows_only_what_does_something_now() -> None:
    assert plain(footer(KEYS, {"help", "back"}, 40)).split() == ["?", "help", "q", "back"]


def test_help_lists_every_key_by_group_or_only_those_that_are_active() -> None:
    everything = " ".join(plain(line) for line in help_lines(KEYS, 60))
    assert all(key.help in " ".join(everything.split()) for key in KEYS)
    assert all(width_of(line) == 60 for line in help_lines(KEYS, 60))
    only = [plain(line).split() for line in help_lines(KEYS, 60, active={"copy"})]
    assert only[0] == ["Look"]
    assert only[1][0] == "y"
    assert len(only) == 2
    assert all(plain(line).isascii() for line in help_lines(KEYS, 100, active={"down", "up"}, glyphs=ASCII))


def test_the_framework_gets_a_binding_with_the_same_id_for_each_key() -> None:
    bindings = textual_bindings(KEYS)
    assert [(binding.id, binding.key) for binding in bindings] == [(key.id, ",".join(key.keys)) for key in KEYS]
    assert not any(binding.show for binding in bindings)
