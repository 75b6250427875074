"""An exception of the user's code, told as one error with the user's own line."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import amptui.project as interface
from amptui.project import ProjectError
from amptui.spec.error import SpecError
from amptui.spec.near import did_you_mean, files_called, folders_in, python_files
from amptui.spec.own_code import OwnCode
from amptui.spec.shadow import file_of, shadow_behind
from amptui.text import text_of

_WRONG_KEYWORD = re.compile(
    r"(Project|Update|Case|Policy|Scaler|Criteria)\.__init__\(\) (?:"
    r"got an unexpected keyword argument '(?P<unknown>\w+)'"
    r"|missing \d+ required keyword-only arguments?: (?P<missing>.+)"
    r"|takes (?P<positional>1 positional argument but .+))"
)


@dataclass(frozen=True)
class Doing:
    """What amptui was doing with the user's code."""

    own: OwnCode
    #: Folders that the user's modules are imported from.
    roots: tuple[Path, ...]
    #: The file to point at where no line of the user's is known.
    file: str
    #: `your module`, `build()`.
    actor: str
    #: ` while being imported`, or nothing.
    during: str
    #: Python that shows the whole traceback.
    to_repeat: str


@contextmanager
def told(doing: Doing) -> Iterator[None]:
    """Let whatever the user's code raises in the block leave it as a `SpecError`; only Ctrl-C passes."""
    try:
        yield
    except (KeyboardInterrupt, SpecError):
        raise
    except BaseException as error:
        raise explained(error, doing) from error


def explained(error: BaseException, doing: Doing) -> SpecError:
    """`error` as a `SpecError` at the user's innermost line."""
    line = doing.own.innermost(error.__traceback__)
    where = str(line) if line else doing.file
    if isinstance(error, SyntaxError):
        return _syntax(error, where)
    if isinstance(error, SystemExit):
        return _exits(error, doing, where)
    if isinstance(error, ProjectError):
        return SpecError("project", str(error), "", where)  # says its mend itself
    shadow = shadow_behind(error, doing.roots, where)
    if shadow:
        return shadow
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _module_not_found(error.name, doing, where)
    match = _WRONG_KEYWORD.match(text_of(error)) if type(error) is TypeError else None
    if match:
        return _wrong_keyword(match, where)
    return SpecError("raises", f"{doing.actor} raised {_in_words(error)}{doing.during}", _advice(error, doing), where)


def _syntax(error: SyntaxError, where: str) -> SpecError:
    if error.filename and error.lineno and not error.filename.startswith("<"):
        where = f"{error.filename}:{error.lineno}"
    source = f": {error.text.strip()}" if isinstance(error.text, str) and error.text.strip() else ""
    return SpecError("syntax", f"{error.msg}{source}", "Python cannot read this line; correct it", where)


def _exits(error: SystemExit, doing: Doing, where: str) -> SpecError:
    code = "" if error.code is None else repr(error.code)
    message = f"{doing.actor} called sys.exit({code}){doing.during}"
    if _passed_through(error, "argparse.py"):
        message += ", in argparse, which found no command line to read"
    if doing.during:
        hint = "put the part that runs as a script under `if __name__ == '__main__':`"
    else:
        hint = "let the function return its Project; values for it go under `args` in amptui.yaml"
    return SpecError("exits", message, hint, where)


def _module_not_found(name: str, doing: Doing, where: str) -> SpecError:
    top, _, rest = name.partition(".")
    root = _root_of(top, doing) if rest else None
    if root is not None:
        return SpecError("own-module-missing", f"your code has no module '{name}'", _near_module(name, root), where)
    if top in sys.modules:
        home = file_of(sys.modules[top]) or "built into Python"
        message = f"your code needs the module '{name}', which the '{top}' of {sys.executable} ({home}) does not have"
        hint = f"install the '{top}' that your code is written for, or name your project's interpreter with --python"
        return SpecError("dependency-missing", message, hint, where)
    hint = "install it there, or name your project's interpreter with --python"
    found = next((path for root in doing.roots for path in _modules_called(top, root)), None)
    if found:
        hint = f"found {found}: run amptui from {found.parent}, or write app_dir: {found.parent} in amptui.yaml"
    message = f"your code needs the module '{name}', which is not installed in {sys.executable}"
    return SpecError("dependency-missing", message, hint, where)


def _root_of(top: str, doing: Doing) -> Path | None:
    """The folder that holds the user's own module or package `top`, or None where it is not the user's."""
    for root in doing.roots:
        if (root / top).is_dir() or (root / f"{top}.py").is_file():
            return root
    packages = (Path(folder) for folder in doing.own.own)  # with an installed package that SPEC names
    return next((folder.parent for folder in packages if folder.name == top and folder not in doing.roots), None)


def _modules_called(name: str, root: Path) -> Iterator[Path]:
    """Files and packages of that name in the project, such as one in an `src` folder."""
    yield from files_called([f"{name}.py"], root)
    yield from (file.parent for file in files_called(["__init__.py"], root) if file.parent.name == name)


def _near_module(name: str, root: Path) -> str:
    package, _, last = name.rpartition(".")
    folder = root.joinpath(*package.split("."))
    if not folder.is_dir():
        return f"'{package}' is a single file, not a package" if folder.with_suffix(".py").is_file() else ""
    return did_you_mean(last, [*(file[:-3] for file in python_files(folder)), *folders_in(folder)])


def _wrong_keyword(match: re.Match[str], where: str) -> SpecError:
    kind = match[1]
    known = [field.name for field in fields(getattr(interface, kind))]
    if match["unknown"]:
        hint = did_you_mean(match["unknown"], known) or f"it has {', '.join(known)}"
        return SpecError("project", f"{kind}(…) has no field '{match['unknown']}'", hint, where)
    if match["missing"]:
        return SpecError("project", f"{kind}(…) lacks {match['missing']}", "", where)
    return SpecError("project", f"{kind}(…) takes its fields by name only", f"write {kind}({known[0]}=…)", where)


def _advice(error: BaseException, doing: Doing) -> str:
    if isinstance(error, ImportError) and "relative import" in text_of(error):
        folder = Path(doing.file).parent
        return (
            f"{folder} is no package: add an __init__.py to it, or run amptui from {folder.parent} "
            f"with {folder.name}.{Path(doing.file).stem}:…"
        )
    python, root = shlex.quote(sys.executable), shlex.quote(str(doing.roots[0]))
    return f"the whole traceback: cd {root} && {python} -c '{doing.to_repeat}'"


def _in_words(error: BaseException) -> str:
    text = " ".join(text_of(error).split())
    text = f"{text[:399]}…" if len(text) > 400 else text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _passed_through(error: BaseException, file_name: str) -> bool:
    trace = error.__traceback__
    while trace:
        if Path(trace.tb_frame.f_code.co_filename).name == file_name:
            return True
        trace = trace.tb_next
    return False
