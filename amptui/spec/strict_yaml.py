"""The part of YAML that amptui.yaml may use, with the place of every value.

Refused, each with its line and column: anchors and aliases, tags, merge keys, keys that are not text, keys written
twice, a second document, and anything too large or too deep. Values stay text here, since their type comes from the
schema: YAML 1.1, which PyYAML reads, takes `no` for false, `1:30` for 90, `0777` for 511, and `1e-3` for text.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amptui.spec.error import SpecError

if TYPE_CHECKING:
    import yaml

LARGEST = 1 << 20  # bytes
DEEPEST = 20
MOST_VALUES = 5000

_TEXT = "tag:yaml.org,2002:str"

_BYTE_ORDER_MARKS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (b"\xef\xbb\xbf", "UTF-8"))

_MENDS = (
    ("'\\t'", "write spaces instead of the tab"),
    ("mapping values are not allowed", "write one `key: value` a line, and put a text that holds ': ' in quotes"),
    ("expected <block end>", "check the indentation of this line"),
    ("could not find expected ':'", "write `key: value`"),
    ("unexpected end of stream", "close the quote"),
    ("expected ',' or", "separate values by commas and close the bracket"),
    ("cannot start any token", "put the text in quotes"),
)


@dataclass(frozen=True)
class Mark:
    """Line and column, both from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class YamlText:
    text: str
    #: Written without quotes.
    plain: bool
    #: YAML 1.1 takes this plain text for a number, truth value, date or nothing.
    typed: bool
    mark: Mark


@dataclass(frozen=True)
class YamlList:
    items: tuple[YamlNode, ...]
    mark: Mark


@dataclass(frozen=True)
class YamlMap:
    entries: tuple[tuple[YamlText, YamlNode], ...]
    mark: Mark


YamlNode = YamlText | YamlList | YamlMap


@dataclass(frozen=True)
class YamlFile:
    """An amptui.yaml on disk. `name` is how errors call it."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def refused(self, mark: Mark | None, message: str, hint: str = "") -> SpecError:
        """The error for something at `mark`."""
        where = f"{self.name}:{mark.line}:{mark.column}" if mark else self.name
        return SpecError("settings", message, hint, where)

    def text(self) -> str:
        """The file as text: UTF-8, at most 1 MiB."""
        data = self._bytes()
        encoding = next((name for start, name in _BYTE_ORDER_MARKS if data.startswith(start)), None)
        if encoding:
            raise self.refused(
                Mark(1, 1), f"the file begins with a byte order mark ({encoding})", "save it as plain UTF-8"
            )
        if b"\0" in data:
            mark = _mark_at(data[: data.index(b"\0")])
            raise self.refused(mark, "the file holds a NUL byte", "save it as UTF-8 text")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            mark = _mark_at(data[: error.start])
            raise self.refused(mark, f"byte 0x{data[error.start]:02x} is not UTF-8", "save it as UTF-8") from None

    def document(self) -> YamlNode | None:
        """The one document in the file, or None where it is empty.

        Raises:
            SpecError: `settings`, with line and column, for everything that is not allowed.
        """
        return _Parser(self).document()

    def _bytes(self) -> bytes:
        try:
            # O_NONBLOCK: opening a pipe without a writer would wait for ever.
            handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise self.refused(None, f"{self.path} is no regular file")
                data = file.read(LARGEST + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise self.refused(None, f"{self.path} cannot be read: {why}") from None
        if len(data) > LARGEST:
            raise self.refused(None, "the file is larger than 1 MiB", "an amptui.yaml has a few lines")
        return data


class _Parser:
    """Builds nodes from PyYAML's events, so that what is refused is refused before it is built."""

    def __init__(self, file: YamlFile) -> None:
        import yaml  # noqa: PLC0415 - the client's library: this module must be importable in the engine without it

        self._yaml = yaml
        self._file = file
        self._source = file.text()
        self._values = 0

    def document(self) -> YamlNode | None:
        yaml = self._yaml
        try:
            self._loader = yaml.SafeLoader(self._source)
            self._loader.get_event()
            if isinstance(self._loader.get_event(), yaml.StreamEndEvent):
                return None
            node = self._node(self._loader.get_event(), DEEPEST)
            self._loader.get_event()
            after = self._loader.get_event()
            if not isinstance(after, yaml.StreamEndEvent):
                raise self._file.refused(
                    _mark(after), "a second document begins here", "keep one, without a second '---'"
                )
        except yaml.reader.ReaderError as error:
            mark = _mark_at(self._source[: error.position].encode())
            said = f"the character U+{_code_of(error.character):04X} is not allowed"
            raise self._file.refused(mark, said, "remove it") from None
        except yaml.MarkedYAMLError as error:
            raise self._no_yaml(error) from None
        except (ValueError, OverflowError) as error:  # PyYAML leaves chr() of a bad \U escape to Python
            mark = Mark(self._loader.line + 1, self._loader.column + 1)
            raise self._file.refused(mark, f"this cannot be read: {error}", "correct the text before it") from None
        return node

    def _node(self, event: yaml.Event, levels: int) -> YamlNode:
        yaml = self._yaml
        mark = _mark(event)
        self._values += 1
        if self._values > MOST_VALUES:
            raise self._file.refused(
                mark, f"the file holds more than {MOST_VALUES:,} values", "an amptui.yaml has a few lines"
            )
        if isinstance(event, yaml.AliasEvent):
            raise self._file.refused(mark, f"'*{event.anchor}' is an alias, which is not allowed", "write the value")
        assert isinstance(event, yaml.ScalarEvent | yaml.SequenceStartEvent | yaml.MappingStartEvent)
        if event.anchor is not None:
            raise self._file.refused(mark, f"'&{event.anchor}' is an anchor, which is not allowed", "remove it")
        if event.tag is not None:
            raise self._file.refused(mark, f"the tag '{event.tag}' is not allowed", "remove it; amptui knows the type")
        if isinstance(event, yaml.ScalarEvent):
            return self._text(event, mark)
        if levels == 0:
            raise self._file.refused(
                mark, f"values are nested more than {DEEPEST} deep", "an amptui.yaml has two or three levels"
            )
        if isinstance(event, yaml.SequenceStartEvent):
            return YamlList(tuple(self._items(levels - 1)), mark)
        return YamlMap(self._entries(levels - 1), mark)

    def _text(self, event: yaml.ScalarEvent, mark: Mark) -> YamlText:
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            raise self._file.refused(mark, "the text holds half a character (a surrogate)", "write it whole")
        plain = not event.style
        typed = plain and self._loader.resolve(self._yaml.ScalarNode, event.value, (True, False)) != _TEXT
        return YamlText(event.value, plain, typed, mark)

    def _items(self, levels: int) -> list[YamlNode]:
        items: list[YamlNode] = []
        while not isinstance(event := self._loader.get_event(), self._yaml.SequenceEndEvent):
            items.append(self._node(event, levels))
        return items

    def _entries(self, levels: int) -> tuple[tuple[YamlText, YamlNode], ...]:
        entries: dict[str, tuple[YamlText, YamlNode]] = {}
        while not isinstance(event := self._loader.get_event(), self._yaml.MappingEndEvent):
            key = self._key(self._node(event, levels))
            value = self._node(self._loader.get_event(), levels)
            if key.text in entries:
                first = entries[key.text][0].mark
                raise self._file.refused(
                    key.mark, f"'{key.text}' is written twice", f"keep one; the first is in line {first.line}"
                )
            entries[key.text] = (key, value)
        return tuple(entries.values())

    def _key(self, node: YamlNode) -> YamlText:
        if not isinstance(node, YamlText):
            kind = "list" if isinstance(node, YamlList) else "map"
            raise self._file.refused(node.mark, f"a {kind} is no key", "write `key: value`")
        if node.plain and node.text == "<<":
            raise self._file.refused(node.mark, "the merge key '<<' is not allowed", "write the values themselves")
        if node.typed:
            raise self._file.refused(
                node.mark, f"the key {node.text or '(nothing)'} is no text in YAML", f'write "{node.text}"'
            )
        return node

    def _no_yaml(self, error: yaml.MarkedYAMLError) -> SpecError:
        problem = error.problem or "this is no YAML"
        mark = _of(error.problem_mark or error.context_mark)
        began = _of(error.context_mark)
        if "end of stream" in problem and began is not None:
            mark = began  # where the quote was opened says more than where the file ends
        hint = next((mend for part, mend in _MENDS if part in problem), "correct it")
        return self._file.refused(mark, f"this is no YAML: {problem}", hint)


def _mark(event: yaml.Event) -> Mark:
    mark = _of(event.start_mark)
    assert mark is not None
    return mark


def _of(mark: Any) -> Mark | None:
    return None if mark is None else Mark(mark.line + 1, mark.column + 1)


def _code_of(character: str | int) -> int:
    return character if isinstance(character, int) else ord(character)  # PyYAML's types say str, and it gives int


def _mark_at(before: bytes) -> Mark:
    lines = before.decode(errors="replace").split("\n")
    return Mark(len(lines), len(lines[-1]) + 1)
