"""How the screen is to look and which keys it has: from the command line, and from the configuration file.

# ~/.config/amptui/config.yaml
theme: light          # dark, light or plain
ascii: false
mouse: true
paints: 4             # a second, at most
keys:
  phase: P
  copy: y, ctrl+y
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from amptui.spec.error import SpecError
from amptui.ui.keys import KEYS, Key, rebind_own

if TYPE_CHECKING:
    from amptui.spec.strict_yaml import YamlNode
    from amptui.spec.value_reader import ValueReader


#: As `amptui.ui.theme` has them, which brings the framework along.
THEME_NAMES = ("dark", "light", "plain")


@dataclass(frozen=True, kw_only=True)
class ScreenSettings:
    """What is not given is None and leaves the choice to the terminal. Raises SpecError for what cannot be."""

    theme: str | None = None
    ascii: bool | None = None
    mouse: bool | None = None
    paints: float | None = None
    keys: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.theme is not None and self.theme not in THEME_NAMES:
            raise SpecError("settings", f"there is no theme “{self.theme}”", f"choose one of {', '.join(THEME_NAMES)}")
        if self.paints is not None and not 0.2 <= self.paints <= 60:
            raise SpecError("settings", f"paints is {self.paints:g}", "write a number a second from 0.2 to 60")
        unknown = [identity for identity in self.keys if identity not in _known_keys()] if self.keys else []
        if unknown:
            raise SpecError("settings", f"there is no key binding “{unknown[0]}”", "amptui's README lists them")
        for which, screen in _screens().items() if self.keys else ():
            try:
                rebind_own(screen, self.keys)
            except ValueError as error:
                raise SpecError("settings", f"{error}{which}") from error

    def overridden_by(self, other: ScreenSettings) -> ScreenSettings:
        given = {f.name: getattr(other, f.name) for f in fields(other) if getattr(other, f.name) is not None}
        return replace(self, **{**given, "keys": {**self.keys, **other.keys}})

    def bindings(self) -> tuple[Key, ...]:
        """The keys of the guided trial, with those that were bound otherwise."""
        return rebind_own(KEYS, self.keys)


def _screens() -> Mapping[str, Sequence[Key]]:
    """The keys of every screen, by what an error adds to say which."""
    from amptui.ui.inspect.keys import INSPECT_KEYS  # noqa: PLC0415 - most people bind no key otherwise

    return {"": KEYS, " (on the screen of amptui inspect)": INSPECT_KEYS}


def _known_keys() -> list[str]:
    return list(dict.fromkeys(key.id for screen in _screens().values() for key in screen))


def config_path() -> Path:
    """Where the configuration file is looked for; it need not exist."""
    import platformdirs  # noqa: PLC0415 - the client's own library

    return platformdirs.user_config_path("amptui", appauthor=False) / "config.yaml"


def read_screen_settings(path: Path | None = None) -> ScreenSettings:
    """The configuration file's settings, none where there is no file. Raises SpecError with the place."""
    path = path or config_path()
    if not path.exists():
        return ScreenSettings()
    from amptui.spec.strict_yaml import YamlFile  # noqa: PLC0415 - most people have no such file
    from amptui.spec.value_reader import ValueReader  # noqa: PLC0415

    file = YamlFile(path)
    root = file.document()
    if root is None:
        return ScreenSettings()
    reader = ValueReader(file)
    given: dict[str, object] = {}
    for key, node, _ in reader.entries(root, "", ["theme", "ascii", "mouse", "paints", "keys"]):
        given[key] = _value(reader, node, key)
    try:
        return ScreenSettings(**given)  # type: ignore[arg-type]
    except SpecError as error:
        raise SpecError("settings", error.message, error.hint, str(path)) from error


def _value(reader: ValueReader, node: YamlNode, key: str) -> object:
    if key == "theme":
        return reader.text(node, key, "dark")
    if key in ("ascii", "mouse"):
        return reader.flag(node, key)
    if key == "paints":
        return reader.number(node, key)
    entries = reader.entries(node, key, _known_keys())
    return {name: reader.text(value, f"keys.{name}", "S") for name, value, _ in entries}
