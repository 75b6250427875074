"""What `amptui restore` says."""

from __future__ import annotations

from amptui.session.restore import Exported, VerifyReport
from amptui.text import safe_text


def say_verified(report: VerifyReport) -> str:
    """One line for every checkpoint of the session, and one for what is wrong with its records."""
    lines = [
        f"{check.name}: {check.tensors:,} tensors, {check.bytes:,} bytes, every byte as it was saved"
        if check.ok
        else f"{check.name}: DAMAGED: {safe_text(check.problem)}"
        for check in report.checkpoints
    ]
    if not lines:
        lines.append("no checkpoint was written in this session; nothing had been changed by then")
    if report.store_problem:
        lines.append(f"the session's database: {safe_text(report.store_problem)}")
    return "\n".join(lines)


def say_exported(exported: Exported) -> str:
    shown = safe_text(exported.path, 4096)
    size = f"{exported.tensors:,} tensors, {exported.bytes:,} bytes"
    lines = [
        f"{shown}: checkpoint {exported.name}, {size}, every byte verified",
        f"sha256 {exported.sha256}",
        f'Load it with torch.load({shown!r}, weights_only=True); the weights are under "model".',
    ]
    if exported.store_problem:
        lines.append(f"the session's database: {safe_text(exported.store_problem)}")
    return "\n".join(lines)
