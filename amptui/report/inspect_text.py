"""What `amptui inspect` prints: one page of plain text, at most `width` columns, no escape sequences."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator

from amptui.findings.finding import Finding
from amptui.inspection.command import Answer
from amptui.inspection.result import Inspection, ScalerState
from amptui.text import safe_text

_MARKS = {"fault": "✗", "notice": "!"}
_ASCII_MARKS = {"fault": "x", "notice": "!"}
_PARTS = ("model", "optimizer", "scheduler", "scaler", "rng", "data")
_LABEL = 17


def inspect_text(answer: Answer, *, width: int = 80, ascii_only: bool = False) -> str:
    """The whole answer as text: each checkpoint's card and findings, then what changed between two."""
    pages = ["\n".join(_page(inspection, width, ascii_only)) for inspection in answer.inspections]
    if len(answer.inspections) > 1:
        pages.append("\n".join(_changes(answer, width, ascii_only)))
    text = "\n\n".join(pages)
    return _as_ascii(text) if ascii_only else text


def _page(inspection: Inspection, width: int, ascii_only: bool) -> Iterator[str]:
    yield from _wrapped(safe_text(inspection.path), width)
    yield from _field("format", format_words(inspection), width)
    for scaler in inspection.scalers[:20]:
        name = "loss scale" if len(inspection.scalers) == 1 else safe_text(scaler.path or "loss scale", 60)
        yield from _field(name, scaler_words(scaler, named=name != "loss scale"), width)
    if inspection.readable:
        if not inspection.scalers:
            yield from _field("loss scale", "no scaler state", width)
        yield from _field("steps", steps_words(inspection), width)
        if inspection.learning_rates:
            rates = ", ".join(f"{rate:g}" for rate in inspection.learning_rates[:6])
            yield from _field("learning rate", rates, width)
        for role, counts in inspection.dtypes.items():
            words = ", ".join(f"{count:,} {safe_text(dtype, 30)}" for dtype, count in counts.items())
            yield from _field(role.replace("_", " "), words, width)
        yield from _field("values", values_words(inspection), width)
        yield from _field("exact resume", _resume(inspection, ascii_only), width)
        if inspection.needs_code:
            yield from _field("needs code", _code(inspection), width)
    yield ""
    if not inspection.findings:
        yield "No findings."
    for finding in inspection.findings:
        yield from _finding(finding, width, ascii_only)


def format_words(inspection: Inspection) -> str:
    """What it is: `PyTorch Lightning 2.6.2 · zip, 5.6 kB · complete`."""
    if any(finding.facts.get("code") == "unreadable" for finding in inspection.findings) and not inspection.readable:
        return "nothing was read"
    state = "complete" if inspection.complete else "incomplete" if inspection.readable else "not readable"
    files = f" in {len(inspection.files)} files" if len(inspection.files) > 1 else ""
    container = f"{inspection.container}, " if inspection.container else ""
    return f"{safe_text(inspection.title, 80)} · {container}{size_words(inspection.size)}{files} · {state}"


def scaler_words(scaler: ScalerState, *, named: bool) -> str:
    """Scale, growth and factors in one line; also its place, unless that is already `named`."""
    if scaler.empty:
        return "empty: saved by a disabled scaler"
    scale = number_and_power(scaler.scale) if scaler.scale is not None else safe_text(scaler.stored or "absent", 80)
    words = [scale, *growth_words(scaler)]
    if scaler.growth_factor is not None and scaler.backoff_factor is not None:
        words.append(f"×{scaler.growth_factor:g} / ×{scaler.backoff_factor:g}")
    if scaler.path and not named:
        words.append(f"in {safe_text(scaler.path, 60)}")
    return " · ".join(words)


def number_and_power(scale: float) -> str:
    """A scale with its binary logarithm: `65536 = 2^16`, `3000 ≈ 2^11.6`."""
    if not math.isfinite(scale) or scale <= 0:
        return f"{scale:g}"
    power = math.log2(scale)
    shown = f"{scale:.0f}" if scale == int(scale) and scale < 1e7 else f"{scale:g}"
    return f"{shown} = 2^{power:.0f}" if power == int(power) else f"{shown} ≈ 2^{power:.1f}"


def growth_words(scaler: ScalerState) -> list[str]:
    """What the growth tracker means: `grows after 1,993 more clean updates (7 of 2,000)`."""
    tracker, interval = scaler.growth_tracker, scaler.growth_interval
    if tracker is None:
        return []
    if interval is None:
        return [f"{tracker:,.0f} clean updates since it changed"]
    if not (math.isfinite(tracker) and math.isfinite(interval)) or tracker < 0 or interval <= 0:
        return [f"tracker {tracker:g} of {interval:g}"]
    if tracker >= interval:
        return [f"grows no more: tracker {tracker:,.0f} of {interval:,.0f}"]
    left = interval - tracker
    return [f"grows after {left:,.0f} more clean update{'' if left == 1 else 's'} ({tracker:,.0f} of {interval:,.0f})"]


def steps_words(inspection: Inspection) -> str:
    """`loop 120 · optimizer 117 · 3 skipped · epoch 3`."""
    steps = inspection.steps
    words = []
    if steps.loop is not None:
        words.append(f"loop {steps.loop:,}")
    if steps.optimizer is not None:
        words.append(f"optimizer {steps.optimizer:,}")
    if steps.skipped is not None:
        words.append(f"{steps.skipped:,} skipped")
    if steps.epoch is not None:
        words.append(f"epoch {steps.epoch:g}")
    return " · ".join(words) or "no counter found"


def values_words(inspection: Inspection) -> str:
    """What the tensors' values are like, as far as they were read."""
    if not inspection.values_read:
        if not inspection.tensors:
            return "no tensors"
        return "not read: --values reads them" if inspection.complete else "not read"
    if not inspection.nonfinite and not inspection.complete:
        return "finite where they could be read"
    if not inspection.nonfinite:
        zero = len(inspection.zero)
        return f"all finite · {zero:,} tensor{'' if zero == 1 else 's'} all zero" if zero else "all finite"
    shown = ", ".join(safe_text(path, 80) for path in inspection.nonfinite[:4])
    more = f" and {len(inspection.nonfinite) - 4:,} more" if len(inspection.nonfinite) > 4 else ""
    return f"not finite in {len(inspection.nonfinite):,}: {shown}{more}"


def resume_parts(inspection: Inspection) -> list[tuple[str, bool]]:
    """The parts of an exact resume, each with whether it is there; of RNG states also which."""
    parts = []
    for part in _PARTS:
        if part in inspection.present:
            kinds = [name.partition(".")[2] for name in inspection.present if name.startswith(part + ".")]
            parts.append((f"{part}{' (' + ', '.join(kinds) + ')' if kinds else ''}", True))
    return [*parts, *((part, False) for part in inspection.missing)]


def _resume(inspection: Inspection, ascii_only: bool) -> str:
    yes, no = ("+", "-") if ascii_only else ("✓", "✗")
    return "  ".join(f"{yes if there else no} {part}" for part, there in resume_parts(inspection))


def _code(inspection: Inspection) -> str:
    shown = [
        safe_text(name, 80) + (" (dangerous)" if name in inspection.dangerous else "")
        for name in inspection.needs_code[:6]
    ]
    more = len(inspection.needs_code) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _finding(finding: Finding, width: int, ascii_only: bool) -> Iterator[str]:
    mark = (_ASCII_MARKS if ascii_only else _MARKS)[finding.severity]
    first, *rest = finding.evidence or ("",)
    for index, line in enumerate(_wrapped(safe_text(first), width - 2)):
        yield f"{mark if not index else ' '} {line}"
    for text in (*rest, finding.advice):
        for line in _wrapped(safe_text(text), width - 4) if text else ():
            yield f"    {line}"


def _changes(answer: Answer, width: int, ascii_only: bool) -> Iterator[str]:
    first, second = answer.inspections[:2]
    yield from _wrapped(f"From {safe_text(first.path)} to {safe_text(second.path)}", width)
    if not (first.readable and second.readable):
        yield "  cannot be compared: one of them could not be read"
    elif not answer.changes:
        yield "  no difference that amptui looks at"
    for change in answer.changes:
        mark = ("x" if ascii_only else "✗") if change.bad else " "
        for index, line in enumerate(_wrapped(safe_text(change.text), width - 2)):
            yield f"{mark if not index else ' '} {line}"


def _field(label: str, words: str, width: int) -> Iterator[str]:
    lead = label.ljust(_LABEL) if len(label) < _LABEL else f"{label}\n{' ' * _LABEL}"
    lines = _wrapped(words, max(20, width - _LABEL))
    yield lead + (lines[0] if lines else "")
    for line in lines[1:]:
        yield " " * _LABEL + line


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(20, width), break_on_hyphens=False) or [""]


def size_words(size: int) -> str:
    """Bytes, as files are told: `5.6 kB`, `1.0 GB`."""
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if amount >= 100 or unit == "B" else f"{amount:.1f} {unit}"


def _as_ascii(text: str) -> str:
    for sign, plain in (("·", "|"), ("×", "x"), ("≈", "~"), ("→", "->"), ("…", "...")):
        text = text.replace(sign, plain)
    return text.encode("ascii", "backslashreplace").decode("ascii")
