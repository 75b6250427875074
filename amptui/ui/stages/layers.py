"""The gradient by layer: norm, FP32's at the same step, share of the whole, largest value, zeros, dtype."""

from __future__ import annotations

import math

from amptui.protocol.events import LayersMeasured
from amptui.protocol.facts import UpdateFacts, UpdateRecord
from amptui.session.state import SessionState
from amptui.ui.raster.table import Table, TableColumn, TableRow
from amptui.ui.session_view import SessionView

COLUMNS = (
    TableColumn(title="layer", cut="start"),
    TableColumn(title="norm", width=9, align="right"),
    TableColumn(title="FP32", width=9, align="right"),
    TableColumn(title="share", width=7, align="right", unit=" %"),
    TableColumn(title="max", width=9, align="right"),
    TableColumn(title="zeros", width=7, align="right", unit=" %"),
    TableColumn(title="dtype", width=8),
)


def layers_table(view: SessionView, facts: UpdateFacts | None) -> Table:
    """One row a parameter of the update; a norm of 0 means that nothing reached it, none that it has no gradient.

    `max`, `zeros` and `dtype` are measured where the trial stands still, and empty where it ran on.
    """
    if facts is None:
        return Table(columns=COLUMNS, empty="no update")
    record = newest_record(view.state, view.update(facts.name, view.trial).last, facts.name)
    trial = view.state.trial
    figures = trial.layers.get(facts.name) if trial is not None else None
    if record is not None and figures is not None and figures.step < record.step:
        figures = None
    if figures is not None and (record is None or record.step < figures.step):  # the iteration is still underway
        step, norms = figures.step, figures.norms
        total = math.hypot(*(norm for norm in norms if not norm < 0))
    elif record is not None:
        step, norms, total = record.step, record.norms, record.norm
    else:
        running = trial is not None and trial.verdict is None
        when = "after check_grads, which measures them" if running else "once the trial runs"
        return Table(columns=COLUMNS, empty=f"gradients by layer show here {when}")
    fp32 = view.update(facts.name, view.baseline).layer_norms.get(step)
    rows = []
    for place, (layer, norm) in enumerate(zip(facts.layers, norms, strict=False)):
        beside = fp32[place] if fp32 is not None and place < len(fp32) else -1.0
        values = (layer, _norm(norm), _norm(beside), _share(norm, total), *_measured(figures, place))
        rows.append(TableRow(id=layer, values=values, role="text" if math.isfinite(norm) else "bad"))
    return Table(columns=COLUMNS, rows=rows)


def _measured(figures: LayersMeasured | None, place: int) -> tuple[float | None, float | None, str]:
    """Largest magnitude, percent of zeros and dtype of the layer at `place`."""
    if figures is None or place >= min(len(figures.highest), len(figures.zeros), len(figures.dtypes)):
        return None, None, ""
    zeros = _norm(figures.zeros[place])
    percent = None if zeros is None else round(100.0 * zeros, 1)
    return _norm(figures.highest[place]), percent, figures.dtypes[place]


def newest_record(state: SessionState, last: UpdateRecord | None, update: str) -> UpdateRecord | None:
    """The update's last record; that of the trip where the guard holds a newer one back."""
    trial = state.trial
    if trial is not None and trial.trips and state.paused is not None:
        tripped = trial.trips[-1].record
        if tripped.update == update and (last is None or tripped.step > last.step):
            return tripped
    return last


def _norm(value: float) -> float | None:
    return None if value < 0 else value


def _share(norm: float, total: float) -> float | None:
    """Percent of the whole gradient's squared norm."""
    if norm < 0 or not math.isfinite(norm) or not math.isfinite(total) or total <= 0:
        return None
    return round(100.0 * (norm / total) ** 2, 1)
