"""The keys, as data: what the footer, the help screen, the documentation and the app's bindings are made from.

Each has an id, by which the configuration can give it other keys. None needs a chord that tmux swallows: ctrl+m and
enter, ctrl+i and tab, ctrl+h and backspace are the same byte, ctrl+enter and shift+enter never arrive, and ctrl+a and
ctrl+b belong to screen and tmux.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Line, Span, clipped, width_of
from amptui.ui.raster.prose import Paragraph, prose

if TYPE_CHECKING:
    from textual.binding import Binding


@dataclass(frozen=True)
class Key:
    """One binding. The app runs `action_<id>`.

    `label` stands in the footer, `help` in the help screen and the documentation. `footer` orders the footer: low
    numbers stay longest where room is short, None never shows.
    """

    id: str
    keys: tuple[str, ...]
    label: str
    help: str
    group: str
    footer: int | None = None


KEYS: tuple[Key, ...] = (
    Key("phase", ("s",), "phase", "advance one phase", "Run", 20),
    Key("iteration", ("n",), "next", "run to the end of this iteration", "Run", 10),
    Key("proceed", ("c",), "continue", "continue: the next thing to do", "Run", 4),
    Key("until", ("u",), "until…", "run until a skip, a scale drop, a norm, a loss, a step, a stall", "Run", 21),
    Key("unattended", ("a",), "unattended", "run the trial to its verdict without stopping", "Run", 13),
    Key("retry", ("r",), "retry", "run the held iteration again at the new scale (marks the verdict)", "Run", 13),
    Key("mend", ("m",), "FP32 modules", "repeat the trial with the suggested modules in FP32", "Run", 12),
    Key("extend", ("t",), "10× longer", "repeat the stretch ten times, unattended, same criteria", "Run", 18),
    Key("policies", ("p",), "policy…", "try policies side by side, under the same criteria", "Run", 13),
    Key("yardstick", ("Y",), "other seeds", "run FP32 under other seeds: the yardstick for the effect", "Run", 14),
    Key("find_cases", ("f",), "find cases", "look through the batches for inputs worth being a case", "Run", 24),
    Key("cancel", ("C",), "cancel", "end what is running at the next safe point", "Run", 23),
    Key("pause", ("space",), "pause", "pause, resume", "Run", 22),
    Key("diagnose", ("d",), "diagnose", "why it failed: cause, place, replays; again: the next failure", "Trial", 12),
    Key(
        "fall_back",
        ("F",),
        "fall back",
        "put the FP32 checkpoint back (once more confirms)",
        "Trial",
        3,
    ),
    Key("edit", ("e",), "edit", "open the source line in $EDITOR", "Trial", 16),
    Key("reload", ("R",), "reload", "after an edit: new engine, the kept case first, then the baseline", "Trial", 17),
    Key("change", ("enter",), "change", "change the selected criterion", "Trial", 15),
    Key("new_engine", ("N",), "new engine", "start a new engine for this session", "Trial", 5),
    Key("stage_1", ("1",), "1 project", "stage 1, Project", "Stages"),
    Key("stage_2", ("2",), "2 baseline", "stage 2, Baseline", "Stages"),
    Key("stage_3", ("3",), "3 criteria", "stage 3, Criteria", "Stages"),
    Key("stage_4", ("4",), "4 trial", "stage 4, Trial", "Stages"),
    Key("stage_5", ("5",), "5 verdict", "stage 5, Verdict", "Stages"),
    Key("stage_6", ("6",), "6 measure", "stage 6, Measure", "Stages"),
    Key("stage_7", ("7",), "7 report", "stage 7, Report", "Stages"),
    Key("next_pane", ("tab",), "pane", "next pane", "Look"),
    Key("previous_pane", ("shift+tab",), "pane", "previous pane", "Look"),
    Key("zoom", ("z",), "zoom", "the focused pane on the whole screen, and back", "Look", 31),
    Key("filter", ("slash",), "filter", "show only the rows that contain a text", "Look", 32),
    Key("output", ("o",), "output", "the project's own output", "Look", 33),
    Key("events", ("v",), "events", "everything that happened, in order", "Look", 36),
    Key("other_update", ("w",), "update", "plots and layers of the next update", "Look", 24),
    Key("copy", ("y",), "copy", "copy the focused pane's content; also saved as a file", "Look", 34),
    Key("explain", ("x",), "explain", "show or hide the explanation", "Look", 35),
    Key("down", ("j", "down"), "down", "one row down", "Move"),
    Key("up", ("k", "up"), "up", "one row up", "Move"),
    Key("top", ("g", "home"), "top", "first row", "Move"),
    Key("bottom", ("G", "end"), "bottom", "last row, and follow", "Move"),
    Key("page_down", ("pagedown", "ctrl+d"), "page down", "a page down", "Move"),
    Key("page_up", ("pageup", "ctrl+u"), "page up", "a page up", "Move"),
    Key("sort", ("S",), "sort", "order by the next column", "Table"),
    Key("reverse", ("I",), "reverse", "reverse the order", "Table"),
    Key("log_axis", ("l",), "log", "logarithmic axis, and back", "Plot"),
    Key("zoom_in", ("plus", "equals_sign"), "in", "fewer steps", "Plot"),
    Key("zoom_out", ("minus",), "out", "more steps", "Plot"),
    Key("pan_left", ("left", "left_square_bracket"), "earlier", "earlier steps", "Plot"),
    Key("pan_right", ("right", "right_square_bracket"), "later", "later steps", "Plot"),
    Key("whole", ("0",), "all", "all steps", "Plot"),
    Key("help", ("question_mark", "f1"), "help", "help for this screen", "Help", 1),
    Key("command_palette", ("ctrl+p",), "commands", "every command", "Help"),
    Key("back", ("q", "escape"), "back", "back; never destructive", "Help", 2),
    Key("suspend", ("ctrl+z",), "suspend", "back to the shell; `fg` returns", "Help"),
)

#: How a key is written for people; letters stand for themselves.
_NAMES = {
    "slash": "/",
    "question_mark": "?",
    "escape": "esc",
    "f1": "F1",
    "down": "↓",
    "up": "↑",
    "full_stop": ".",
    "comma": ",",
    "colon": ":",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left": "←",
    "right": "→",
    "pagedown": "pgdn",
    "pageup": "pgup",
}
_NAMES_ASCII = ("down", "up", "left", "right")


def shown(key: str, glyphs: Glyphs = UNICODE) -> str:
    """A key's name as it is printed: ``/``, ``esc``, ``ctrl+p``."""
    if glyphs.name == "ascii" and key in _NAMES_ASCII:
        return key
    return _NAMES.get(key, key)


def rebind(keys: Sequence[Key], wanted: Mapping[str, str]) -> tuple[Key, ...]:
    """`keys` with other keys for some ids: ``{"phase": "S", "copy": "y, ctrl+y"}``.

    Raises:
        ValueError: an id that does not exist, no key at all, a key that terminals do not send, or one key twice.
    """
    known = {key.id for key in keys}
    for identity in wanted:
        if identity not in known:
            raise ValueError(f"There is no key binding “{identity}”. The bindings are: {', '.join(sorted(known))}.")
    result = tuple(replace(key, keys=_parsed(key.id, wanted[key.id])) if key.id in wanted else key for key in keys)
    owners: dict[str, str] = {}
    for key in result:
        for name in key.keys:
            if name in owners:
                raise ValueError(
                    f"The key “{shown(name)}” is bound to both “{owners[name]}” and “{key.id}”. "
                    f"Give one of them another key."
                )
            owners[name] = key.id
    return result


def rebind_own(keys: Sequence[Key], wanted: Mapping[str, str]) -> tuple[Key, ...]:
    """`rebind` with what `wanted` says of `keys`; ids of another screen are left to that. Raises ValueError alike."""
    known = {key.id for key in keys}
    return rebind(keys, {identity: names for identity, names in wanted.items() if identity in known})


_NEVER_ARRIVE = {
    "ctrl+m": "enter",
    "ctrl+i": "tab",
    "ctrl+h": "backspace",
    "ctrl+enter": "enter",
    "shift+enter": "enter",
}
_NAMED = frozenset(
    {
        "enter",
        "tab",
        "space",
        "backspace",
        "escape",
        "insert",
        "delete",
        "home",
        "end",
        *(f"f{n}" for n in range(1, 25)),
    }
)
#: The framework's name for each key as people write it.
_SPELLED = {name: key for key, name in _NAMES.items()}


def _parsed(identity: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError(f"The key binding “{identity}” has no key. Name at least one, such as “s” or “ctrl+r”.")
    for name in names:
        if name in _NEVER_ARRIVE:
            raise ValueError(
                f"“{name}” for “{identity}” would not work: terminals send it as {_NEVER_ARRIVE[name]}, or not at all."
            )
        if not _is_key(name):
            raise ValueError(f"“{name}” for “{identity}” is no key's name. {_meant(name)}")
    return tuple(dict.fromkeys(_SPELLED.get(name, name) for name in names))


def _is_key(name: str) -> bool:
    """Whether the framework knows `name`: a character, a named key, or one of them with ctrl, alt or shift."""
    if len(name) == 1:
        return name.isprintable()
    *modifiers, base = name.split("+")
    if any(modifier not in ("ctrl", "alt", "shift") for modifier in modifiers):
        return False
    if base in _NAMED or base in _NAMES or name in _SPELLED:
        return True
    character = len(base) == 1 and base.isprintable() and base == base.lower()
    return character and bool(modifiers) and "shift" not in modifiers


def _meant(name: str) -> str:
    *modifiers, base = name.split("+")
    for likely in (name.lower(), base.upper() if modifiers == ["shift"] else ""):
        if likely and _is_key(likely):
            return f"Write “{likely}”."
    return "Keys are written as “s”, “S”, “ctrl+r”, “f5” or “space”."


#: The footer's order of what a key does just now.
_LATE = 4


def called(keys: Sequence[Key], labels: Mapping[str, str]) -> tuple[Key, ...]:
    """`keys` with other labels for some ids: what they do just now, which the footer drops late."""
    return tuple(
        replace(key, label=labels[key.id], footer=min(key.footer or _LATE, _LATE)) if key.id in labels else key
        for key in keys
    )


def footer(keys: Iterable[Key], active: Collection[str], width: int, *, glyphs: Glyphs = UNICODE) -> Line:
    """The keys that do something now, in one line of `width` cells; the least important go where room is short.

    They stand in the order of `keys`, so that a key keeps its place while others come and go.
    """
    candidates = [key for key in keys if key.id in active and key.footer is not None]
    kept = {key.id for key in candidates}
    for key in sorted(candidates, key=lambda key: -(key.footer or 0)):
        if width_of(_footer([one for one in candidates if one.id in kept], glyphs)) <= width:
            break
        kept.discard(key.id)
    return clipped(_footer([key for key in candidates if key.id in kept], glyphs), width, glyphs)


def _footer(keys: Sequence[Key], glyphs: Glyphs) -> Line:
    spans: list[Span] = []
    for key in keys:
        spans.append(Span(f" {shown(key.keys[0], glyphs)}", "key"))
        spans.append(Span(f" {key.label} ", "dim"))
    return tuple(spans)


def help_lines(
    keys: Sequence[Key], width: int, *, active: Collection[str] | None = None, glyphs: Glyphs = UNICODE
) -> tuple[Line, ...]:
    """The keys by group in lines of `width` cells; with `active`, only those that do something here."""
    listed = [key for key in keys if active is None or key.id in active]
    names = {key.id: _all_names(key, glyphs) for key in listed}
    column = max((len(name) for name in names.values()), default=0)
    lines: list[Line] = []
    group = ""
    for key in listed:
        if key.group != group:
            group = key.group
            if lines:
                lines.append(clipped([], width, glyphs))
            lines.append(clipped([(group, "strong")], width, glyphs))
        item = Paragraph(((key.help, "text"),), f"  {names[key.id]:<{column}}  ", "key")
        lines.extend(prose([item], width, glyphs=glyphs))
    return tuple(lines)


def _all_names(key: Key, glyphs: Glyphs) -> str:
    return ", ".join(shown(name, glyphs) for name in key.keys)


def markdown(keys: Sequence[Key] = KEYS) -> str:
    """The key table of the documentation."""
    rows = ["| key | does | id |", "| --- | --- | --- |"]
    for key in keys:
        names = " ".join(f"`{shown(name)}`" for name in key.keys)
        rows.append(f"| {names} | {key.help} | `{key.id}` |")
    return "\n".join(rows) + "\n"


def textual_bindings(keys: Sequence[Key], action: str = "{}") -> list[Binding]:
    """The bindings for app or pane, with their ids; footer and help are drawn from `keys` instead.

    `action` is the framework's action, with the key's id for ``{}``.
    """
    from textual.binding import Binding  # noqa: PLC0415  # the documentation is generated without the framework

    return [
        Binding(",".join(key.keys), action.format(key.id), key.label, show=False, id=key.id, tooltip=key.help)
        for key in keys
    ]


def keymap(keys: Sequence[Key], declared: Sequence[Key] = KEYS) -> dict[str, str]:
    """For `App.set_keymap`: the keys of every id that is `declared` with others, so mostly none.

    The framework lays its keymap over all bindings again at every key, which takes longer than what the key does.
    """
    usual = {key.id: key.keys for key in declared}
    return {key.id: ",".join(key.keys) for key in keys if key.keys != usual.get(key.id)}
