"""What `--policies` says: several policies to be tried side by side, such as `fp16,fp16@1024,bf16`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from amptui.project import DTYPE_NAMES
from amptui.spec.error import SpecError

Given = Mapping[str, object]


def parse_policies(text: str) -> tuple[Given, ...]:
    """The fields of each `Policy` that `text` gives: a dtype, and after `@` the first loss scale or `none`.

    Raises `SpecError` for an unknown dtype, a scale that is none, and the same policy twice.
    """
    parts = [part.strip() for part in text.split(",")]
    found: list[Given] = []
    for part in parts:
        given = _policy(part)
        if given in found:
            raise SpecError("form", f"--policies names {part!r} twice", "name each policy once")
        found.append(given)
    return tuple(found)


def _policy(text: str) -> Given:
    dtype, at, scale = text.partition("@")
    if dtype not in DTYPE_NAMES:
        raise SpecError(
            "form", f"--policies: {text!r} is no policy", "write dtypes such as fp16,bf16, or fp16@1024 for a scale"
        )
    if not at:
        return {"dtype": DTYPE_NAMES[dtype]}
    if scale == "none":
        return {"dtype": DTYPE_NAMES[dtype], "scaler": None}
    try:
        first = float(scale)
    except ValueError:
        first = math.nan
    if not 0.0 < first < math.inf:
        raise SpecError("form", f"--policies: {scale!r} is no loss scale", "write a number, as in fp16@1024, or none")
    return {"dtype": DTYPE_NAMES[dtype], "scaler": {"init_scale": first}}


def coarsest(policies: Sequence[Given]) -> str | None:
    """The dtype with the fewest digits: one set of criteria for all has to be proposed for it."""
    dtypes = [str(given["dtype"]) for given in policies if "dtype" in given]
    return "bfloat16" if "bfloat16" in dtypes else next(iter(dtypes), None)
