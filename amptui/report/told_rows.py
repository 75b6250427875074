"""What a row of the verdict asks and measured, in the words that the account and the report share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amptui.findings.judgement import Criterion, Row
from amptui.findings.words import percent
from amptui.report.figures import figure

ASKED: Mapping[Criterion, str] = {
    "finite": "no NaN, no infinity that FP32 does not have",
    "difference": "outputs, first loss and first gradient near FP32",
    "decision": "what the project decides stands",
    "quality": "the project's own measure does not fall too far",
    "updates": "enough updates reach the weights",
    "progress": "the late loss beside the baseline's",
}


def measured(row: Row) -> str:
    """What `limit` bounds, in its own unit: a share of the baseline's value for progress, which is said."""
    if row.measured is None:
        return ""
    if row.criterion != "progress":
        return figure(row.measured)
    if row.measured == 0.0:
        return "the same"
    return f"{'below' if row.measured < 0.0 else 'above'} by {percent(abs(row.measured))}"


def limit(row: Row) -> str:
    """The limit in the unit of `measured`."""
    share = row.criterion == "progress" and isinstance(row.limit, int | float)
    return percent(float(row.limit)) if share else figure(row.limit)  # type: ignore[arg-type]


def unit_notes(rows: Iterable[Row]) -> tuple[str, ...]:
    """How the measured figures of these rows are to be read, one sentence for each kind that is among them."""
    kinds = {_kind(row) for row in rows if row.measured is not None}
    return tuple(note for kind, note in _NOTES.items() if kind in kinds)


def is_gradient(row: Row) -> bool:
    return row.criterion == "difference" and row.what.startswith("gradient")


def _kind(row: Row) -> str:
    return "gradient" if is_gradient(row) else row.criterion


_NOTES = {
    "difference": "Measured, of an output or a loss: what lies beyond rtol × |FP32|, which the limit (atol) bounds.",
    "gradient": "Measured, of a gradient: ‖trial − FP32‖ as a share of the layer's norm in FP32.",
    "quality": "Measured, of the quality: how far it fell.",
    "progress": "Measured, of progress: the difference as a share of the FP32 loss.",
}
