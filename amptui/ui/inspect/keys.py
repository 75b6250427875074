"""The keys of this screen, as data, and which of them do something now. Shared ones are those of the other screen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from amptui.ui.keys import KEYS, Key

Page = Literal["first", "second", "compare", "help"]

_SHARED = {key.id: key for key in KEYS}


def _shared(identity: str, **changed: object) -> Key:
    return replace(_SHARED[identity], **changed)  # type: ignore[arg-type]


INSPECT_KEYS: tuple[Key, ...] = (
    Key("first", ("1",), "1 first", "the first checkpoint", "Pages"),
    Key("second", ("2",), "2 second", "the second checkpoint", "Pages"),
    Key("compare", ("3",), "3 compare", "what happened between the two", "Pages"),
    _shared("filter", label="search", help="show only the contents whose path has these words", footer=3),
    Key("next_bad", ("n",), "next ✗", "the next tensor that is not finite", "Look", 5),
    Key("values", ("v",), "read values", "read all tensor values of a large checkpoint", "Look", 4),
    _shared("next_pane", footer=6),
    _shared("previous_pane"),
    _shared("zoom", footer=7),
    _shared("copy", help="copy the selected finding or entry, or the card; also saved as a file", footer=8),
    Key("copy_all", ("Y",), "copy all", "copy the whole page as `amptui inspect --plain` prints it", "Look", 20),
    Key("turn", ("enter", "space"), "open", "open or close the branch; of a finding, go to its place", "Contents", 9),
    Key("open", ("right", "l"), "open", "open the branch, or go into it", "Contents"),
    Key("close", ("left", "h"), "close", "close the branch, or go up to it", "Contents"),
    Key("open_all", ("plus", "equals_sign"), "all", "open every branch", "Contents", 21),
    Key("close_all", ("minus",), "none", "close every branch", "Contents", 22),
    *(key for key in KEYS if key.group == "Move"),
    _shared("help", footer=1),
    _shared("command_palette"),
    _shared("back", keys=("escape",), help="out of a zoom, of the help, of a search"),
    Key("quit", ("q", "ctrl+c"), "quit", "close this page, or leave; nothing is changed anywhere", "Help", 2),
    _shared("suspend"),
)

#: Keys of panes are declared by the panes.
OF_PANES = ("Move", "Contents")


@dataclass(frozen=True, kw_only=True)
class Now:
    """What decides which keys do something."""

    page: Page
    two: bool = False
    #: Whether values of a checkpoint in view were not read, and could be.
    unread: bool = False
    #: Whether a tensor of the page's checkpoint is not finite.
    bad: bool = False
    #: The kind of the focused pane.
    focus: Literal["contents", "findings", "other"] = "other"
    #: Whether something is open that `back` leads out of.
    inside: bool = False


def active(now: Now) -> frozenset[str]:
    """The ids of the keys that do something now."""
    ids = {"help", "command_palette", "quit", "suspend", "zoom", "copy", "copy_all", "filter"}
    ids |= {"next_pane", "previous_pane"}
    if now.page == "help":
        return frozenset({"quit", "back", "suspend", "command_palette", "copy"})
    if now.two:
        ids |= {"first", "second", "compare"}
    if now.inside:
        ids.add("back")
    if now.unread:
        ids.add("values")
    if now.bad and now.page != "compare":
        ids.add("next_bad")
    if now.focus == "contents":
        ids |= {"turn", "open", "close", "open_all", "close_all"}
    elif now.focus == "findings":
        ids.add("turn")
    return frozenset(ids)
