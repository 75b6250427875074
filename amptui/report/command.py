"""The command `amptui report SESSION`: a recorded session as Markdown, HTML or JSON."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from amptui.protocol.codec import to_json
from amptui.report.compose import compose
from amptui.report.html import html
from amptui.report.markdown import markdown
from amptui.report.recorded import TAKEN, Recorded, RunCurves, read
from amptui.report.result import check_result
from amptui.report.sections.pasted import accepted_code
from amptui.session.durable import PRIVATE_FILE
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.named_file import file_to_write
from amptui.session.named_file import written as written_file
from amptui.session.paths import find_session
from amptui.text import safe_text

Format = Literal["md", "html", "json"]
FORMATS: tuple[Format, ...] = ("md", "html", "json")
_SUFFIXES: dict[str, Format] = {".html": "html", ".htm": "html", ".json": "json"}


def report(session: str, *, format: Format | None, output: str | None) -> str:  # noqa: A002
    """Writes the report of `session` to the file `output`, or to standard output; a sentence about the file, or "".

    Without a format the file's ending decides, and Markdown is the default. Raises SessionError where the session
    cannot be read or the file cannot be written.
    """
    chosen = format or (_SUFFIXES.get(Path(output).suffix.lower(), "md") if output is not None else "md")
    if output in (None, "-") and sys.stdout is None:
        raise SessionError("standard output is closed; name a file with -o")
    folder = find_session(session)
    if output is not None and output != "-":
        path = file_to_write(output, "-o")
        replaced = path.is_file()
        write_report(folder, chosen, path, called=output)
        return (
            f"{safe_text(output, 4096)} {'is replaced' if replaced else 'is written'}: {safe_text(folder.session_id)}"
        )
    text = written(read(folder), chosen)
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()
    return ""


def write_report(folder: SessionFolder, format: Format, path: Path, *, called: str | None = None) -> None:  # noqa: A002
    """Writes the report of the session in `folder` to `path`, whole or not at all, over what may be there.

    `called` is the path as a message names it. Raises SessionError where the session cannot be read or the file cannot
    be written.
    """
    text = written(read(folder), format)
    try:
        with written_file(path, mode=PRIVATE_FILE) as file:
            file.write(text.encode("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        said = safe_text(called if called is not None else path, 4096)
        raise SessionError(f"the report cannot be written to {said}: {reason}") from error


def written(recorded: Recorded, format: Format) -> str:  # noqa: A002
    """The report as text. It holds no surrogates and no control characters but newlines."""
    if format == "json":
        return to_json(as_json(recorded)) + "\n"
    document = compose(recorded)
    return html(document) if format == "html" else markdown(document)


def as_json(recorded: Recorded) -> dict[str, Any]:
    """What `check --json` writes, and beside it the figures by iteration, and the code to paste."""
    return {
        **check_result(recorded.state, session=recorded.path, alive=recorded.alive),
        "began": recorded.began,
        "ended": recorded.ended,
        "curves": {
            "baseline": _curves(recorded.baseline),
            "trial": _curves(recorded.curves) if recorded.curves is not None else None,
        },
        "failures": [asdict(event) for event in recorded.state.failures],
        "fallbacks": [asdict(event) for event in recorded.fallbacks],
        "code": accepted_code(recorded),
    }


def _curves(run: RunCurves) -> dict[str, Any]:
    return {
        "updates": {
            name: {
                "step": update.steps.tolist(),
                "loss": update.losses.tolist(),
                "norm": update.norms.tolist(),
                "outcome": [TAKEN[taken] for taken in update.taken],
            }
            for name, update in run.updates.items()
        },
        "scale": {"step": run.steps.tolist(), "scale": run.scales.tolist()},
    }
