"""Two checkpoints beside each other, as a table and as what happened between them."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.inspection.compare import Change
from amptui.inspection.result import Inspection
from amptui.report.inspect_text import number_and_power, size_words
from amptui.ui.inspect.words import counted
from amptui.ui.raster.glyphs import Glyphs
from amptui.ui.raster.prose import Paragraph, paragraph
from amptui.ui.raster.table import Table, TableColumn, TableRow

_WHAT = 18


def changes_told(changes: Sequence[Change], glyphs: Glyphs) -> list[Paragraph]:
    """Each change as a sentence, those that speak of harm marked."""
    if not changes:
        return [paragraph("no difference that amptui looks at", "dim", lead="   ")]
    return [
        paragraph(
            change.text,
            "bad" if change.bad else "text",
            lead=f" {glyphs.fail if change.bad else glyphs.separator} ",
            lead_role="bad" if change.bad else "dim",
        )
        for change in changes
    ]


def side_by_side(before: Inspection, after: Inspection, names: Sequence[str], width: int) -> Table:
    """One row for each thing that both tell, with a mark where they differ."""
    one, other = _told(before), _told(after)
    second = max(12, (width - _WHAT - 8) // 2)
    rows = []
    for what in dict.fromkeys((*one, *other)):
        left, right = one.get(what, ""), other.get(what, "")
        rows.append(
            TableRow(
                id=what,
                values=(f"{' ' if left == right else '≠'} {what}", left, right),
                role="dim" if left == right else "strong",
            )
        )
    columns = (
        TableColumn(title="what", width=_WHAT, cut="start"),
        TableColumn(title=names[0], cut="end"),
        TableColumn(title=names[1], width=second, cut="end"),
    )
    return Table(columns=columns, rows=rows, empty="reading")


def _told(inspection: Inspection) -> dict[str, str]:
    """What is compared, in words short enough for half a line."""
    steps = inspection.steps
    told = {
        "format": inspection.title,
        "size": size_words(inspection.size),
        "complete": "yes" if inspection.complete else "no",
    }
    for scaler in inspection.scalers[:20]:
        name = "" if len(inspection.scalers) == 1 else f" {scaler.path}"
        told[f"loss scale{name}"] = (
            number_and_power(scaler.scale) if scaler.scale is not None else scaler.stored or "absent"
        )
        tracker = _count(scaler.growth_tracker)
        if scaler.growth_interval is not None:
            tracker += f" of {_count(scaler.growth_interval)}"
        told[f"growth tracker{name}"] = tracker
    told["loop steps"] = _count(steps.loop)
    told["optimizer steps"] = _count(steps.optimizer)
    told["skipped"] = _count(steps.skipped)
    told["epoch"] = _count(steps.epoch)
    told["learning rate"] = ", ".join(f"{rate:g}" for rate in inspection.learning_rates[:4])
    for role, counts in inspection.dtypes.items():
        told[role.replace("_", " ")] = ", ".join(f"{count:,} {dtype}" for dtype, count in counts.items())
    told["not finite"] = counted(len(inspection.nonfinite), "tensor") if inspection.values_read else "values not read"
    told["missing"] = ", ".join(inspection.missing) or "nothing"
    faults = sum(finding.severity == "fault" for finding in inspection.findings)
    told["findings"] = f"{counted(faults, 'fault')}, {counted(len(inspection.findings) - faults, 'notice')}"
    return {what: words for what, words in told.items() if words}


def _count(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
