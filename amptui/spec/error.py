"""What is wrong with a spec or an amptui.yaml: one sentence, its place, and the mend."""

from __future__ import annotations

from typing import Literal

from amptui.text import safe_text

SpecCode = Literal[
    "form",  # the text is no SPEC
    "file-missing",
    "module-missing",  # the module that SPEC names
    "own-module-missing",  # a module of the user's package that the user's code imports
    "dependency-missing",  # an installed module that the user's code imports
    "syntax",
    "raises",
    "exits",
    "attribute-missing",
    "needs-arguments",
    "unexpected-arguments",
    "wrong-type",
    "shadowed",  # another installed module came instead of the user's file, or the other way round
    "stdlib-shadow",  # the same with a module of Python itself
    "project",  # a Project, Update, Policy… refused its values
    "settings",  # amptui.yaml
    "starter",  # `amptui new`
]

_LIMIT = 1200


class SpecError(Exception):
    """One sentence for the user. All parts are safe to print: foreign text in them is made visible.

    `where` is `file:line` or `file:line:column` where a place is known, `hint` what to do next (may be empty).
    """

    def __init__(self, code: SpecCode, message: str, hint: str = "", where: str | None = None) -> None:
        super().__init__(code, message, hint, where)
        self.code: SpecCode = code
        self.message = safe_text(message, _LIMIT)
        self.hint = safe_text(hint, _LIMIT)
        self.where = None if where is None else safe_text(where, _LIMIT)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        mend = f"; {self.hint}" if self.hint else ""
        return f"{place}{self.message}{mend}"
