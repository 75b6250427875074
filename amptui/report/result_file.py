"""The file that a result is written to: found out before a run, not after it, to be one that can be written."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from amptui.protocol.codec import to_json
from amptui.session.errors import SessionError
from amptui.session.named_file import file_to_write, held_pipe, named_path, require_place, written
from amptui.text import safe_text


@contextmanager
def writable(path: str | None) -> Iterator[None]:
    """A block that ends with a result for `path` (``-``: standard output; None: nowhere).

    Raises SessionError before it if the result could not be written: a regular file is opened without changing it, a
    pipe must have a reader, who is kept to the block's end.
    """
    with ExitStack() as held:
        if path == "-":
            if sys.stdout is None:
                raise SessionError("--json -: standard output is closed; name a file")
        elif path is not None:
            place = file_to_write(path, "--json")
            try:
                require_place(place)
                held.enter_context(held_pipe(place))
            except OSError as error:
                raise SessionError(
                    f"--json {safe_text(path, 4096)} cannot be written: {error.strerror or error}"
                ) from error
        yield


def write_result(path: str | None, result: Mapping[str, object]) -> None:
    """Writes `result` as JSON to `path`, as `writable` takes it. Raises OSError, SessionError where it is none."""
    if path is None:
        return
    text = to_json(result) + "\n"
    if path == "-":
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
        return
    with written(named_path(path, "--json")) as file:
        file.write(text.encode("utf-8"))
