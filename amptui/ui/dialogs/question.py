"""What is asked: a sentence, a few answers with a key each, or a text to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from amptui.ui.raster.line import Role
from amptui.ui.raster.prose import Paragraph, paragraph


@dataclass(frozen=True)
class Option:
    """One answer: the key that gives it, what it does, and the value it stands for."""

    key: str
    label: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question. With `entry` a text is asked for, that `check` refuses by a ValueError; else one of `options`."""

    title: str
    paragraphs: Sequence[Paragraph | None] = field(default_factory=tuple)
    options: Sequence[Option] = ()
    entry: str | None = None
    check: Callable[[str], object] | None = None
    role: Role = "accent"
    #: Whether enter takes the first option: where each is as harmless as the other.
    enter: bool = False


def sentence(text: str, role: Role = "text") -> Paragraph:
    return paragraph(text, role)
