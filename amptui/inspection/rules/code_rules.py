"""Findings about code that a real load of the file would import or run."""

from __future__ import annotations

from collections.abc import Iterator

from amptui.findings.finding import Finding
from amptui.inspection.notes import fault, notice
from amptui.inspection.rules.evidence import Evidence

#: What every distributed checkpoint's `.metadata` names; torch's own reader of it allows anything anyway.
_DISTRIBUTED = "torch.distributed.checkpoint."

#: No writer calls anything with a larger number: tensors' sizes stand elsewhere.
LARGEST_ARGUMENT = 1 << 32


def code_findings(evidence: Evidence) -> Iterator[Finding]:
    """Dangerous globals first, then those that only keep torch's safe loading from working."""
    dangerous = [name for name, grade in evidence.grades.items() if grade == "dangerous"]
    if dangerous:
        shown = ", ".join(dangerous[:5]) + (f" and {len(dangerous) - 5} more" if len(dangerous) > 5 else "")
        what = f"loading this file runs code: it calls or imports {shown}"
        advice = (
            "Do not load it with weights_only=False, and do not allow-list these names. "
            "Ask whoever made it for a file of tensors only (safetensors, or a plain state dict)."
        )
        yield fault("dangerous-code", what, advice=advice, globals=dangerous[:50])
    computed = evidence.code.computed_calls
    if computed:
        what = f"loading this file makes {computed:,} calls of functions that it works out while loading"
        yield fault("dangerous-code", what, advice="Do not load it with weights_only=False.")
    if evidence.code.largest_argument > LARGEST_ARGUMENT:
        what = f"loading this file asks for {min(evidence.code.largest_argument, 1 << 62):,} bytes or elements at once"
        yield fault("memory-bomb", what, "even torch's safe loading does it", advice="Do not load it.")
    needed = [
        name
        for name, grade in evidence.grades.items()
        if grade in ("known", "own") and not name.startswith(_DISTRIBUTED)
    ]
    if evidence.layout.name == "dcp":  # its `.metadata` also holds the folder's own path
        needed = [name for name in needed if not name.startswith("pathlib.")]
    if needed:
        shown = ", ".join(needed[:5]) + (f" and {len(needed) - 5} more" if len(needed) > 5 else "")
        what = f"torch.load refuses it by default: it names {shown}"
        advice = "If you trust its origin, allow-list exactly these names (torch.serialization.safe_globals)."
        yield notice("needs-code", what, advice=advice, globals=needed[:50])
