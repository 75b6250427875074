"""The text SPEC: which of its three forms it has, and what it names. Nothing in it is ever evaluated.

`package.module:attr`, `path/to/file.py:attr`, or an `amptui.yaml`. `attr` is a dotted name.
"""

from __future__ import annotations

import keyword
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from amptui.spec.error import SpecError
from amptui.spec.near import closest, did_you_mean, factories, files_called, folders_in, listed, python_files

FORMS = "write package.module:function or path/to/file.py:function"
_LONGEST = 4096  # no path that the kernel takes is longer


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What SPEC names. `target` is a dotted module name, or the absolute path of a Python file or of an amptui.yaml.

    `attribute` is the dotted name after the `:`, empty for an amptui.yaml.
    """

    kind: Literal["module", "file", "settings"]
    target: str
    attribute: str
    #: As the user wrote it.
    text: str

    @property
    def absolute(self) -> str:
        """SPEC text that names the same from any folder."""
        return f"{self.target}:{self.attribute}" if self.attribute else self.target

    @property
    def title(self) -> str:
        """What a project without a name of its own is called: `digits`, `gan/train`, `package.module:small`.

        A file's folder tells one `train.py` from another; an attribute called `project` goes without saying.
        """
        named = self.target
        if self.kind != "module":
            path = Path(os.path.normpath(self.target))
            named = path.stem if path.parent.name in ("", path.stem) else f"{path.parent.name}/{path.stem}"
        return named if self.attribute in ("", "project") else f"{named}:{self.attribute}"


def parse_reference(text: str, *, folder: Path | str) -> Reference:
    """SPEC as a `Reference`; relative paths begin at `folder`. A file must be there, a module is not looked for.

    Raises:
        SpecError: `form` or `file-missing`, with what was probably meant. Files are read for that, and nothing is run.
    """
    base = Path(folder).absolute()
    _refuse_unreadable(text)
    if text.lower().endswith((".yaml", ".yml")):
        path = _path(text, base)
        require_file(path, shown=text)
        return Reference(kind="settings", target=str(path), attribute="", text=text)
    head, colon, attribute = text.rpartition(":")
    if not colon:
        said = f"{_short(text)} is a folder" if _is_folder(_path(text, base)) else f"'{_short(text)}' has no ':'"
        raise SpecError("form", said, _hint_without_colon(text, base))
    if not head.strip():
        raise SpecError(
            "form", f"no file or module stands before the ':' of '{_short(text)}'", _hint_for(base, attribute)
        )
    if head.lower().endswith((".yaml", ".yml")):
        raise SpecError("form", f"nothing can follow the ':' of '{text}'", f"write {head}; its `entry` names the rest")
    if "/" in head or head.endswith(".py"):
        path = _path(head, base)
        _require_python_file(path, head, attribute)
        _require_name(attribute, head, factories(path))
        return Reference(kind="file", target=str(path), attribute=attribute, text=text)
    if not is_dotted_name(head):
        folder_at = _is_folder(base / head)
        said = f"{_short(head)} is a folder" if folder_at else f"'{_short(head)}' is no module name and no path"
        raise SpecError("form", said, _hint_for_head(head, attribute, base))
    _require_name(attribute, head, _factories_of_module(head, base))
    return Reference(kind="module", target=head, attribute=attribute, text=text)


def is_dotted_name(text: str) -> bool:
    """Whether `text` is one or more Python names joined by dots."""
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in text.split("."))


def require_file(path: Path, *, shown: str) -> None:
    """Refuse a `path` that is no readable regular file, naming the file that was probably meant.

    Raises:
        SpecError: `file-missing`, or `form` for a folder, a pipe or a device.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError):
            raise SpecError("file-missing", f"{path} cannot be read: {error.strerror}") from None
        raise SpecError("file-missing", f"no file {path}", _hint_for_missing(path, shown)) from None
    if stat.S_ISDIR(mode):
        raise SpecError("form", f"{shown} is a folder", _hint_for_folder(path, shown))
    if not stat.S_ISREG(mode):
        raise SpecError("form", f"{shown} is no regular file", FORMS)
    if not os.access(path, os.R_OK):
        raise SpecError("file-missing", f"{path} cannot be read: Permission denied")


def _refuse_unreadable(text: str) -> None:
    if not text.strip():
        raise SpecError("form", "SPEC is empty", FORMS)
    if len(text) > _LONGEST:
        raise SpecError("form", f"SPEC is {len(text):,} characters long", FORMS)
    if not text.isprintable():
        raise SpecError("form", f"'{_short(text)}' holds a character that cannot be shown", "write it without")


def _path(text: str, base: Path) -> Path:
    if text.startswith("~/"):
        return Path.home() / text[2:]
    return base / text


def _require_python_file(path: Path, head: str, attribute: str) -> None:
    if head.endswith(".py"):
        require_file(path, shown=head)
        return
    if factories(path.with_name(f"{path.name}.py") if path.name else path):
        raise SpecError("form", f"'{_short(head)}' is no .py file", f"write {head}.py:{attribute}")
    if _is_folder(path):
        raise SpecError("form", f"{head} is a folder", _hint_for_folder(path, head))
    if head.endswith("/"):
        raise SpecError("file-missing", f"there is no folder {head.rstrip('/')}", FORMS)
    raise SpecError("form", f"'{_short(head)}' is no .py file", FORMS)


def _require_name(attribute: str, head: str, known: tuple[str, ...]) -> None:
    if is_dotted_name(attribute):
        return
    if not attribute:
        what = "NAME being a Project or a function that returns one"
        said = f"write {head}:{known[0]}" if known else f"write {head}:NAME, {what}"
        raise SpecError("form", f"nothing follows the ':' of '{_short(head)}:'", said)
    name = attribute.partition("(")[0].strip()
    meant = closest(name, known)
    if meant is None and attribute in (f"{name}()", f" {name}", f"{name} ") and is_dotted_name(name):
        meant = name
    example = f"write {head}:{meant}; " if meant else ""
    values = "values for it go under `args` in amptui.yaml" if "(" in attribute else "nothing else is read"
    raise SpecError(
        "form", f"'{_short(attribute)}' is not a name", f"{example}only a (dotted) name follows the ':', {values}"
    )


def _factories_of_module(module: str, base: Path) -> tuple[str, ...]:
    if not is_dotted_name(module):
        return ()
    path = base.joinpath(*module.split("."))
    return factories(path.with_suffix(".py")) or factories(path / "__init__.py")


def _hint_without_colon(text: str, base: Path) -> str:
    path = _path(text, base)
    if _is_folder(path):
        return _hint_for_folder(path, text)
    known = factories(path) if text.endswith(".py") else _factories_of_module(text, base)
    if known:
        return f"write {text}:{known[0]}" + (f" ({text} defines {listed(known)})" if len(known) > 1 else "")
    module, dot, name = text.rpartition(".")
    if dot and name in _factories_of_module(module, base):
        return f"write {module}:{name}"
    if "/" in text.rstrip("/"):
        return FORMS
    name = text.rstrip("/")
    modules = [file.removesuffix(".py") for file in python_files(base)]
    return did_you_mean(name, folders_in(base) if text != name else [*modules, *folders_in(base)]) or FORMS


def _hint_for_head(head: str, attribute: str, base: Path) -> str:
    if "\\" in head:
        return "write '/' between folders"
    if _is_folder(base / head):
        return _hint_for_folder(base / head, head)
    beside = python_files(base)
    match = closest(head, [name.removesuffix(".py") for name in beside])
    return f"write {match}.py:{attribute}" if match else FORMS


def _hint_for(base: Path, attribute: str) -> str:
    """What may have been left out before `attribute`: a file that defines it, else anything that lies here."""
    for name in python_files(base):
        if attribute in factories(base / name):
            return f"write {name}:{attribute}"
    return _hint_for_folder(base, "")


def _hint_for_folder(path: Path, shown: str) -> str:
    """What to write instead of the folder `path`, which the user calls `shown` ("" for the one that one stands in)."""
    begin = f"{shown.rstrip('/')}/" if shown else ""
    if (path / "amptui.yaml").is_file():
        return f"write {begin}amptui.yaml"
    for name in python_files(path):
        known = factories(path / name)
        if known:
            return f"write the file in it, such as {begin}{name}:{known[0]}"
    return FORMS


def _hint_for_missing(path: Path, shown: str) -> str:
    parent = path.parent
    if not _is_folder(parent):
        match = closest(parent.name, folders_in(parent.parent))
        return f"there is no folder {parent} either" + (f"; did you mean '{match}'?" if match else "")
    names = (
        python_files(parent)
        if path.suffix == ".py"
        else [p.name for ending in ("*.yaml", "*.yml") for p in parent.glob(ending)]
    )
    elsewhere = files_called([path.name], parent)
    if elsewhere:
        return f"found {elsewhere[0].relative_to(parent)}"
    meant = did_you_mean(path.name, names)
    if meant:
        return meant
    return f"{parent} has {listed(names)}" if names else f"{shown} is looked for in {parent}"


def _short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:79]}…{text[-80:]}"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
