"""The iteration at hand, phase by phase: what each did, with its values, and in words what the guard saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from amptui.findings.words import listed, micro_batches, scale_text
from amptui.protocol.events import GuardTripped, PhaseDone
from amptui.protocol.facts import IterationRecord, PhaseName, UpdateRecord
from amptui.session.state import SessionState, TrialState
from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Role
from amptui.ui.raster.numbers import number
from amptui.ui.raster.prose import Paragraph, paragraph
from amptui.ui.stages.stage import Shown
from amptui.ui.widgets.text import TextValue

#: Phases that every update goes through, in their order.
_OF_UPDATE: tuple[PhaseName, ...] = (
    "zero_grad",
    "forward",
    "check_loss",
    "backward",
    "unscale",
    "check_grads",
    "clip",
    "step",
)
Piece = tuple[str, Role]


def iteration_text(shown: Shown, glyphs: Glyphs = UNICODE) -> TextValue:
    """What is known of the iteration that is stepped through, else of the last one."""
    trial = shown.view.state.trial
    if trial is None:
        return TextValue(title="this iteration", paragraphs=_how_to_start(shown))
    clips = _clips(shown.view.state)
    if shown.situation.trip_waits:
        return _tripped(trial.trips[-1], trial, clips, glyphs)
    stepped = trial.phases
    last = trial.run.last
    if stepped and (last is None or stepped[-1].step > last.step):
        return _stepped(stepped, clips, glyphs)
    if last is None:
        return TextValue(title="this iteration", paragraphs=[paragraph("The cases come first.", "dim")])
    return _whole(last, clips, glyphs)


def _clips(state: SessionState) -> Mapping[str, str]:
    """By update that clips its gradients, what is to be said where that left the norm alone."""
    updates = state.project.updates if state.project is not None else ()
    by_value = {one.name: "by value" for one in updates if one.clip_value is not None}
    return by_value | {one.name: "not needed" for one in updates if one.clip_norm is not None}


def _how_to_start(shown: Shown) -> list[Paragraph | None]:
    if shown.view.state.locked is None:
        return [paragraph("The trial follows the baseline (2) and the locked criteria (3).", "dim")]
    return [
        paragraph("Each iteration shows its phases here: zero_grad, forward, backward, unscale, step…", "dim"),
        paragraph(shown.situation.keys.say("{phase} goes through them one by one."), "dim"),
    ]


def _tripped(tripped: GuardTripped, trial: TrialState, clips: Mapping[str, str], glyphs: Glyphs) -> TextValue:
    record = tripped.record
    paragraphs: list[Paragraph | None] = [Paragraph(_spaced(_phases_of(record, clips, glyphs, named=False)))]
    role: Role = "warn" if record.skipped else "bad"
    mark = glyphs.skipped if record.skipped else glyphs.withheld
    paragraphs.append(paragraph(tripped.words, "text", lead=f"{mark} ", lead_role=role))
    if tripped.retained is not None:
        count = f"; it is number {trial.tripped:,} that the guard held in this trial" if trial.tripped > 1 else ""
        kept = f"The iteration is kept as {tripped.retained}, to be run again{count}."
        paragraphs.append(paragraph(kept, "dim"))
    return TextValue(title=f"iteration {record.step:,}{_of(record)} is held", paragraphs=paragraphs)


def _of(record: UpdateRecord) -> str:
    return f" · {record.update}" if record.update != "main" else ""


def _whole(record: IterationRecord, clips: Mapping[str, str], glyphs: Glyphs) -> TextValue:
    paragraphs: list[Paragraph | None] = []
    for update in record.updates:
        pieces = _phases_of(update, clips, glyphs)
        if len(record.updates) > 1:
            pieces = [(f"{update.update}:", "strong"), *pieces]
        paragraphs.append(Paragraph(_spaced(pieces)))
        for name, value in update.shown.items():
            paragraphs.append(Paragraph([(f"  {name} {number(value)}", "dim")]))
    paragraphs.append(Paragraph(_spaced([_scale_piece(record, glyphs)])))
    return TextValue(title=f"iteration {record.step:,}", paragraphs=paragraphs)


def _scale_piece(record: IterationRecord, glyphs: Glyphs) -> Piece:
    if not record.growth_interval:
        return f"{glyphs.absent} update_scale (no scaler)", "dim"
    before, after = scale_text(record.scale_before), scale_text(record.scale_after)
    changed = f"{before} → {after}" if before != after else f"{after}, clean for {record.growth_tracker:,}"
    return f"{glyphs.ok} update_scale {changed}", "text" if before == after else "warn"


def _phases_of(record: UpdateRecord, clips: Mapping[str, str], glyphs: Glyphs, *, named: bool = True) -> list[Piece]:
    """The phases of one update as its record tells them; those after the last check did not run where one failed.

    `named`: whether the bad layers are named, as where no sentence below does.
    """
    bad_loss = record.outcome == "bad_loss"
    failed = record.outcome not in ("ok", "no_gradient")
    scaled = f"×{scale_text(record.scale)}" if record.scale != 1.0 else ""
    pieces: list[Piece] = [
        _done("zero_grad", "", glyphs),
        _done("forward", f"loss {number(record.loss)}", glyphs, bad=bad_loss and not math.isfinite(record.loss)),
        _done("check_loss", "", glyphs, bad=bad_loss),
        _done("backward", scaled, glyphs),
        _done("unscale", "" if record.scale != 1.0 else "(no scaler)", glyphs),
    ]
    if record.outcome == "no_gradient":
        return [*pieces, (f"{glyphs.absent} no gradient, no step", "dim")]
    pieces.append(_check_grads(record, glyphs, named=named))
    if failed:
        kind = "skipped" if record.skipped else "withheld"
        mark = glyphs.skipped if record.skipped else glyphs.withheld
        return [*pieces, (f"{mark} step {kind}", "warn" if record.skipped else "bad")]
    pieces.append(_clip(record.clipped_to, clips.get(record.update), glyphs))
    pieces.append(_done("step", "applied", glyphs))
    return pieces


def _clip(factor: float, otherwise: str | None, glyphs: Glyphs) -> Piece:
    """By how much the norm was clipped; `otherwise`: what is said where it was not, None where nothing clips."""
    if otherwise is None:
        return f"{glyphs.absent} no clipping", "dim"
    return _done("clip", f"×{number(factor)}" if factor < 1.0 else otherwise, glyphs)


def _check_grads(record: UpdateRecord, glyphs: Glyphs, *, named: bool) -> Piece:
    """The phase as it was for the gradients themselves: a bad loss may have finite ones, and so may a bad buffer."""
    losses = micro_batches(record.bad)
    names = [name for name in record.bad if name not in losses] if named else []
    which = f": {listed(names, 2)}" if names else ""
    if record.outcome == "norm_overflow":
        return _done("check_grads", f"norm beyond float32{which}", glyphs, bad=True)
    if record.found_inf or not math.isfinite(record.norm):
        return _done("check_grads", f"not finite{which}", glyphs, bad=True)
    norm = f"norm {number(record.norm)}"
    if record.outcome == "bad_buffers":
        return _done("check_grads", f"{norm}, buffers not finite{which}", glyphs, bad=True)
    return _done("check_grads", norm, glyphs)


def _done(phase: str, value: str, glyphs: Glyphs, *, bad: bool = False) -> Piece:
    text = f"{glyphs.fail if bad else glyphs.ok} {phase}{' ' if value else ''}{value}"
    return text, "bad" if bad else "text"


def _spaced(pieces: Sequence[Piece]) -> list[Piece]:
    """Phases with two blanks between; inside of one, blanks that do not break."""
    spaced: list[Piece] = []
    for text, role in pieces:
        spaced.append((text.replace(" ", "\u00a0"), role))
        spaced.append(("  ", "dim"))
    return spaced[:-1]


def _stepped(phases: Sequence[PhaseDone], clips: Mapping[str, str], glyphs: Glyphs) -> TextValue:
    """The phases done so far, the newest marked, then those to come."""
    newest = phases[-1]
    of_update = [phase for phase in phases if phase.update in (newest.update, None)]
    earlier = list(dict.fromkeys(p.update for p in phases if p.update not in (newest.update, None)))
    paragraphs: list[Paragraph | None] = []
    if earlier:
        paragraphs.append(paragraph(f"{', '.join(str(name) for name in earlier)}: done", "dim", lead=f"{glyphs.ok} "))
    latest = {phase.phase: phase for phase in of_update}
    # A run that was stopped in the middle of an iteration has not told of what came before.
    untold = _OF_UPDATE[: _OF_UPDATE.index(of_update[0].phase)] if of_update[0].phase in _OF_UPDATE else ()
    pieces: list[Piece] = [(f"{glyphs.ok} {name}", "dim") for name in untold if name not in latest]
    pieces += [_stepped_piece(phase, clips, glyphs, newest=phase is newest) for phase in latest.values()]
    if newest.phase in _OF_UPDATE:
        pieces += [(f"{glyphs.absent} {name}", "dim") for name in _OF_UPDATE if name not in {*latest, *untold}]
        pieces += [(f"{glyphs.absent} update_scale", "dim")]
    paragraphs.append(Paragraph(_spaced(pieces)))
    if newest.note:
        paragraphs.append(paragraph(f"{newest.phase}: {newest.note}", "dim"))
    name = f" · {newest.update}" if newest.update not in (None, "main") else ""
    micro = "" if newest.micro_batch is None else f", micro-batch {newest.micro_batch}"
    return TextValue(title=f"iteration {newest.step:,}{name}, after {newest.phase}{micro}", paragraphs=paragraphs)


def _stepped_piece(phase: PhaseDone, clips: Mapping[str, str], glyphs: Glyphs, *, newest: bool) -> Piece:
    if phase.phase == "clip":
        text, role = _clip(phase.values.get("factor", 1.0), clips.get(phase.update or ""), glyphs)
        return text, "accent" if newest else role
    bad = any(not math.isfinite(value) for value in phase.values.values())
    value = _phase_value(phase.phase, phase.values)
    text, role = _done(phase.phase, value, glyphs, bad=bad)
    return text, "bad" if bad else "accent" if newest else role


def _phase_value(phase: PhaseName, values: Mapping[str, float]) -> str:
    """The figure that tells most about a phase."""
    if phase == "forward" and "loss" in values:
        return f"loss {number(values['loss'])}"
    if phase == "backward" and "scale" in values:
        return f"×{scale_text(values['scale'])}" if values["scale"] != 1.0 else ""
    if phase == "check_grads" and "norm" in values:
        return f"norm {number(values['norm'])}"
    if phase == "update_scale" and "scale" in values:
        return scale_text(values["scale"])
    if phase == "scheduler" and "learning_rate" in values:
        return f"lr {number(values['learning_rate'])}"
    return ""
