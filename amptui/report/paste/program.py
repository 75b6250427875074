"""The code to paste, put together: header, what it needs, the training step, saving and restoring."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.report.paste.helpers import buffers_put_back, found_inf, mixed_precision, new_scaler
from amptui.report.paste.plan import Plan
from amptui.report.paste.state import load_training_state, training_state
from amptui.report.paste.step import train_step, uses_fmean
from amptui.text import safe_text

Lines = Sequence[str]


def training_code(plan: Plan, *, made_from: str) -> str:
    """A Python module as text, ASCII only: functions to call in one's own loop. It imports torch and nothing of amptui.

    On the trial's batches and random numbers it gives the trial's weights, buffers, optimizer state and loss scale bit
    for bit, as long as the guard held nothing back that the scaler's rule would have let pass. `made_from` names the
    session in the header.
    """
    parts = [_header(plan, made_from), _imports(plan)]
    if plan.scaler is not None:
        parts.append(new_scaler(plan, plan.scaler))
    if plan.asks_scaler:
        parts.append(found_inf())
    if plan.rollback:
        parts.append(buffers_put_back(plan))
    if plan.regions:
        parts.append(mixed_precision(plan))
    parts += [train_step(plan), training_state(plan), load_training_state(plan)]
    first, second, *functions = ["\n".join(part) for part in parts]
    return f"{first}\n{second}\n\n\n" + "\n\n\n".join(functions) + "\n"


def comment(text: str) -> str:
    """Foreign text for a comment: one line, ASCII."""
    return safe_text(text, 120).encode("ascii", "backslashreplace").decode("ascii")


def _header(plan: Plan, made_from: str) -> Lines:
    arithmetic = f"{plan.dtype} autocast" if plan.autocast else "float32"
    scaling = "with loss scaling" if plan.scaler is not None else "without loss scaling"
    return [
        f"# A training step in {arithmetic} {scaling}, as amptui's trial ran it.",
        f"# From {comment(made_from)}.",
    ]


def _imports(plan: Plan) -> Lines:
    lines = []
    if plan.regions:
        lines += ["import functools", "from contextlib import contextmanager"]
    if uses_fmean(plan):
        lines.append("from statistics import fmean")
    return [*lines, *([""] if lines else []), "import torch"]
