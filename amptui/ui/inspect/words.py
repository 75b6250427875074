"""What the screen says of an inspection, as runs of text with roles; the wording is the printed page's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from amptui.inspection.result import Inspection, ScalerState, TensorFact
from amptui.report.inspect_text import growth_words, resume_parts, scaler_words, size_words, steps_words, values_words
from amptui.text import safe_text
from amptui.ui.inspect.contents import Entry, damaged
from amptui.ui.inspect.reading import Reading
from amptui.ui.raster.glyphs import Glyphs
from amptui.ui.raster.line import Role, fit
from amptui.ui.raster.prose import Paragraph

Pieces = list[tuple[str, Role]]

#: Cells for labels, and where there is more room.
_LABEL, _ROOMY_LABEL = 13, 15
_GAUGE = 24
#: What everyone's scaler has is not told where there is little room.
_USUAL_FACTORS = " · ×2 / ×0.5"
_MOST_SCALERS = 12


def judged(inspection: Inspection, glyphs: Glyphs) -> Pieces:
    """`✗ 2 faults · 1 notice`: the findings counted."""
    faults = sum(finding.severity == "fault" for finding in inspection.findings)
    notices = len(inspection.findings) - faults
    pieces: Pieces = []
    if not inspection.readable:
        pieces.append((f"{glyphs.fail} not readable", "bad"))
    elif faults:
        pieces.append((f"{glyphs.fail} {counted(faults, 'fault')}", "bad"))
    else:
        pieces.append((f"{glyphs.ok} no fault", "good"))
    if notices:
        pieces.append((f" {glyphs.separator} {counted(notices, 'notice')}", "dim"))
    return pieces


def counted(number: int, noun: str) -> str:
    """`1 fault`, `2 faults`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def progress(reading: Reading, glyphs: Glyphs, bar: int = 12) -> Pieces:
    """`values 340 MB of 1.0 GB ━━━━┄┄┄┄ 34 %`; nothing where nothing is being read."""
    if not reading.busy:
        return []
    if reading.inspection is None:
        return [("reading", "dim")]
    if not reading.total:
        return [("reading values", "dim")]
    share = min(1.0, reading.done / reading.total)
    full = int(share * bar)
    return [
        (f"values {size_words(reading.done)} of {size_words(reading.total)} ", "dim"),
        (glyphs.solid_key * full, "accent"),
        (glyphs.dashed_key * (bar - full), "rule"),
        (f" {int(share * 100):3} %", "text"),
    ]


def short_names(paths: Sequence[str]) -> list[str]:
    """The last part of each path, and as many parts before it as tell them apart."""
    parts = [PurePath(path).parts or (path,) for path in paths]
    longest = max((len(part) for part in parts), default=1)
    names = [""] * len(paths)
    for count in range(1, longest + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return [safe_text(name, 200) for name in names]


def card(inspection: Inspection, glyphs: Glyphs, *, roomy: bool = False, screen_reads: bool = True) -> list[Paragraph]:
    """Scale, resume, steps, values, dtypes; the weightiest first. `roomy` tells more, one thing a line."""
    lines: list[Paragraph] = []
    for scaler in inspection.scalers[:_MOST_SCALERS]:
        lines.extend(_scaler(scaler, inspection, glyphs, roomy=roomy))
    more = len(inspection.scalers) - _MOST_SCALERS
    if more > 0:
        lines.append(_field("", [(f"and {counted(more, 'more scaler')}", "dim")], roomy=roomy))
    if not inspection.readable:
        return lines
    if not inspection.scalers:
        lines.append(_field("loss scale", [("no scaler state", "text")], roomy=roomy))
    lines.extend(_resume(inspection, glyphs, roomy=roomy))
    lines.append(_field("steps", [(_unbroken(steps_words(inspection)), "text")], roomy=roomy))
    lines.append(_field("values", [_values(inspection, screen_reads=screen_reads)], roomy=roomy))
    lines.extend(_dtypes(inspection, roomy=roomy))
    if inspection.learning_rates:
        rates = ", ".join(f"{rate:g}" for rate in inspection.learning_rates[:6])
        lines.append(_field("learning rate", [(rates, "text")], roomy=roomy))
    if inspection.needs_code:
        lines.append(_field("needs code", list(_code(inspection)), roomy=roomy))
    return lines


def _field(label: str, spans: Sequence[tuple[str, Role]], *, roomy: bool = False) -> Paragraph:
    return Paragraph(spans, lead=f" {fit(label, _ROOMY_LABEL if roomy else _LABEL, cut='start')} ", lead_role="dim")


def _scaler(scaler: ScalerState, inspection: Inspection, glyphs: Glyphs, *, roomy: bool) -> Iterator[Paragraph]:
    alone = len(inspection.scalers) == 1
    words = scaler_words(scaler, named=True)
    head, _, rest = (words if roomy else words.removesuffix(_USUAL_FACTORS)).partition(" · ")
    spans: Pieces = [(head, _scale_role(scaler))]
    if rest:
        spans.append((_unbroken(f" · {rest}"), "text"))
    yield _field("loss scale" if alone else scaler.path or "(the file)", spans, roomy=roomy)
    gauge = _gauge(scaler, glyphs) if roomy else []
    if gauge:
        yield _field("", gauge, roomy=roomy)


def _unbroken(words: str) -> str:
    """So that no line begins with a separator, and no count is broken in two."""
    return words.replace(" · ", "\u00a0· ").replace(" of ", "\u00a0of\u00a0")


def _scale_role(scaler: ScalerState) -> Role:
    if scaler.empty:
        return "warn"
    return "strong" if scaler.scale is not None and 0 < scaler.scale < math.inf else "bad"


def _gauge(scaler: ScalerState, glyphs: Glyphs) -> Pieces:
    """How far the growth tracker is on its way, as a bar."""
    tracker, interval = scaler.growth_tracker, scaler.growth_interval
    if tracker is None or interval is None or not growth_words(scaler):
        return []
    if not (math.isfinite(tracker) and math.isfinite(interval) and 0 <= tracker < interval):
        return []
    full = round(_GAUGE * tracker / interval)
    return [
        (glyphs.solid_key * full, "accent"),
        (glyphs.dashed_key * (_GAUGE - full), "rule"),
        (f" {100 * tracker / interval:.0f} % of the way", "dim"),
    ]


def _resume(inspection: Inspection, glyphs: Glyphs, *, roomy: bool) -> Iterator[Paragraph]:
    """`✓ model  ✗ rng`: what an exact resume needs; roomy, with the place of each."""
    marks: list[tuple[str, str, Role]] = [
        (part, glyphs.ok if there else glyphs.fail, "good" if there else "bad")
        for part, there in resume_parts(inspection)
    ]
    if not roomy:
        spans: Pieces = []
        for part, mark, role in marks:
            # A part is not broken in two: its blanks are such that stay.
            spans += [(f"{mark} {part}".replace(" ", "\u00a0"), role), ("  ", "text")]
        yield _field("exact resume", spans[:-1])
        return
    for number, (part, mark, role) in enumerate(marks):
        places = inspection.present.get(part.partition(" (")[0], ())
        where = f"{places[0]}{f' and {len(places) - 1:,} more' if len(places) > 1 else ''}" if places else ""
        text: Pieces = [(f"{mark} ", role), (f"{part} ", "text"), (where, "dim")]
        yield _field("" if number else "exact resume", text, roomy=True)


def _values(inspection: Inspection, *, screen_reads: bool) -> tuple[str, Role]:
    words = values_words(inspection)
    if words.startswith("not read:"):
        return ("not read: v reads them" if screen_reads else "being read", "warn")
    role: Role = "bad" if damaged(inspection) else "warn" if inspection.nonfinite else "text"
    return (_unbroken(words), role)


def _dtypes(inspection: Inspection, *, roomy: bool) -> Iterator[Paragraph]:
    told = {
        role.replace("_", " "): ", ".join(f"{count:,} {dtype}" for dtype, count in counts.items())
        for role, counts in inspection.dtypes.items()
    }
    if roomy:
        for role, counts in told.items():
            yield _field(role, [(counts, "text")], roomy=True)
    elif told:
        yield _field("dtypes", [(_unbroken(" · ".join(f"{role} {counts}" for role, counts in told.items())), "text")])


def _code(inspection: Inspection) -> Iterator[tuple[str, Role]]:
    dangerous = set(inspection.dangerous)
    names = sorted(inspection.needs_code[:200], key=lambda name: name not in dangerous)
    for number, name in enumerate(names[:12]):
        if number:
            yield (", ", "text")
        yield (f"{name} (dangerous)", "bad") if name in dangerous else (name, "text")
    if len(inspection.needs_code) > 12:
        yield (f" and {len(inspection.needs_code) - 12:,} more", "dim")


def tensor_words(tensor: TensorFact, bad: int, *, values_read: bool) -> tuple[str, Role]:
    """What a tensor's values are like: `3 of 64 not finite`; empty where that is nothing to tell."""
    if tensor.nonfinite is None:
        return ("" if values_read else "values not read", "dim")
    if not tensor.nonfinite:
        return ("all zero", "warn") if tensor.zero else ("all finite", "good")
    of_these = f", {tensor.minus_infinite:,} of these -inf" if tensor.minus_infinite else ""
    words = f"{tensor.nonfinite:,} of {tensor.elements:,} not finite{of_these}"
    if bad:
        return (words, "bad")
    return (words, "warn") if tensor.role == "other" else (f"{words}: meant so", "dim")


def entry_facts(entry: Entry, *, values_read: bool) -> Pieces:
    """What is told of one entry besides its path."""
    pieces: Pieces = [(entry.text, "text")]
    if entry.tensor is not None:
        pieces.append((f" · {entry.tensor.role.replace('_', ' ')}", "dim"))
        words, role = tensor_words(entry.tensor, entry.bad, values_read=values_read)
        if words:
            pieces += [(" · ", "dim"), (words, role)]
    elif entry.bad:
        pieces.append((f" · {counted(entry.bad, 'tensor')} not finite", "bad"))
    if entry.scaler is not None:
        pieces.append((f" · loss scaler: {scaler_words(entry.scaler, named=True)}", "text"))
    return pieces
