"""What FP32 alone had foretold, and what the trial made of it; and which ops ran in which dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amptui.findings.foreseen import DtypeForecast, PlaceForecast, place_name, place_words
from amptui.findings.words import counted, scale_text
from amptui.report.document import Block, Bullets, Column, Paragraph, Section, Table, Words
from amptui.report.figures import figure, name, place, size, words
from amptui.report.recorded import Recorded
from amptui.session.side_by_side import comparison

_MODULES = 12


def forecast_section(recorded: Recorded) -> Section | None:
    state, trial = recorded.state, recorded.trial
    blocks: list[Block] = []
    if state.forecast is not None and state.forecast.dtypes:
        blocks.append(_forecast(state.forecast.dtypes))
    beside = comparison(state, trial) if trial is not None else None
    if beside is not None and beside.words:
        blocks += [Paragraph("Beside what the trial showed:"), Bullets([words(said) for said in beside.words])]
    mapped = state.precision.get(trial.number) if trial is not None else None
    if mapped is not None and mapped.failed is None:
        casts = f"{counted(mapped.casts, 'cast')} by autocast, {size(mapped.cast_bytes)} written by them"
        blocks.append(Paragraph(f"{words(mapped.words).rstrip('.')}. One window: {casts}."))
        lines: list[Sequence[Words]] = [
            (name(place_name(module.path)), _ops(module.ops), f"{module.casts:,}", size(module.cast_bytes))
            for module in mapped.modules[:_MODULES]
        ]
        columns = (Column("Module"), Column("Ops"), Column("Casts", number=True), Column("Bytes", number=True))
        more = len(mapped.modules) - _MODULES
        note = f"{counted(more, 'more module')} in the session." if more > 0 else ""
        blocks.append(Table("Which ops ran in which dtype", columns, lines, note))
    return Section("forecast", "Forecast and map of precision", blocks) if blocks else None


def _forecast(dtypes: Sequence[DtypeForecast]) -> Table:
    lines: list[Sequence[Words]] = [
        (
            forecast.dtype,
            _overflows(forecast),
            _place(forecast.places[0]) if forecast.places else "",
            figure(forecast.places[0].headroom) if forecast.places else "",
            _first_scale(forecast),
        )
        for forecast in dtypes
    ]
    columns = (
        Column("Dtype"),
        Column("Overflows in forward"),
        Column("Least headroom at"),
        Column("Headroom", number=True),
        Column("Initial scale that should fit", number=True),
    )
    note = "Headroom: the dtype's largest value over the largest that FP32 showed there; below 1 it overflows."
    return Table("What FP32 alone foretold, before the trial", columns, lines, note)


def _overflows(forecast: DtypeForecast) -> str:
    if forecast.failed is not None:
        return f"not known: {words(forecast.failed)}"
    if not forecast.overflows:
        return "none"
    more = len(forecast.overflows) - 1
    return _place(forecast.overflows[0]) + (f" and {counted(more, 'more place')}" if more else "")


def _first_scale(forecast: DtypeForecast) -> str:
    if forecast.failed is not None:
        return "not known"
    if forecast.initial_scale is not None:
        return scale_text(forecast.initial_scale)
    return "none: every iteration overflows" if forecast.overflowing or forecast.beyond_every_scale else "none needed"


def _place(found: PlaceForecast) -> str:
    return " · ".join(part for part in (name(place_words(found)), place(found.line)) if part)


def _ops(ops: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name(dtype)}" for dtype, count in ops.items())
