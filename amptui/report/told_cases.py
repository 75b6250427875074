"""What `amptui cases` prints: inputs that are worth being a case, and how to take them over."""

from __future__ import annotations

from amptui.findings.words import counted
from amptui.protocol.events import CasesFound
from amptui.protocol.measuring import FoundCase
from amptui.report.figures import figure, name, place, words
from amptui.session.state import SessionState


def say_found(event: CasesFound) -> str:
    """A line a case, remarks, and the code that loads the file."""
    lines = [f"{counted(len(event.found), 'case')} worth having, out of {counted(event.samples, 'sample')} in FP32"]
    width = max((len(name(found.id)) for found in event.found), default=0)
    lines += [_line(found, width) for found in event.found]
    lines += [f"  ! {words(remark)}" for remark in event.remarks]
    if event.path is not None and event.found:
        lines += [
            "",
            f"written to {name(event.path)}; to take them over:",
            *(f"  {line}" for line in code_lines(event.path)),
        ]
    elif event.found:
        lines += ["", "write -o FILE to keep them"]
    return "\n".join(lines)


def code_lines(path: str) -> tuple[str, str]:
    """The two lines that take over what was written to `path`."""
    return (
        f"found = torch.load({name(repr(path))}, weights_only=True)",
        "Project(…, cases=[*cases, *(Case(**case) for case in found)])",
    )


def _line(found: FoundCase, width: int) -> str:
    where = f"batch {found.batch}, sample {found.sample}" if found.batch is not None else "made"
    decided = f" · decides {figure(found.decision)}" if found.decision is not None else ""
    return f"  {name(found.id):{width}}  {found.tag:8}  {where} · {words(found.why)}{decided}"


def say_not_found(state: SessionState) -> str:
    """Why there are none: a refusal, a death, or an end before the search."""
    if state.refusal is not None:
        at = f"{place(state.refusal.where)}: " if state.refusal.where else ""
        hint = f"; {words(state.refusal.hint)}" if state.refusal.hint else ""
        return f"amptui: {at}{words(state.refusal.message)}{hint}"
    if state.death is not None:
        return f"amptui: {words(state.death.words)}"
    if state.failure is not None:
        return f"amptui: {words(state.failure.message)}"
    return "amptui: the engine ended before it had looked"
