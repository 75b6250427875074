"""Findings about a checkpoint: kind and stage are `checkpoint`, a code tells them apart."""

from __future__ import annotations

from amptui.findings.finding import Finding


def fault(code: str, *evidence: str, advice: str, path: str = "", **facts: object) -> Finding:
    """Something that must change before a run can be resumed from this checkpoint, or before it may be loaded.

    `code` is a stable name for machines; the first evidence says what was found, in a sentence; `path` is the place
    in the checkpoint.
    """
    return Finding(
        kind="checkpoint",
        severity="fault",
        stage="checkpoint",
        evidence=evidence,
        advice=advice,
        facts={"code": code, "path": path, **facts},
    )


def notice(code: str, *evidence: str, advice: str = "", path: str = "", **facts: object) -> Finding:
    """Something worth knowing that needs no change."""
    return Finding(
        kind="checkpoint",
        severity="notice",
        stage="checkpoint",
        evidence=evidence,
        advice=advice,
        facts={"code": code, "path": path, **facts},
    )
