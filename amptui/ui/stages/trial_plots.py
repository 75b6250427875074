"""The trial's curves: loss over the baseline's, unscaled gradient norm, loss scale, and what became of each update."""

from __future__ import annotations

import math

from amptui.findings.words import counted, scale_text
from amptui.protocol.facts import UpdateFacts
from amptui.ui.raster.frame import Limit
from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.heading import legend
from amptui.ui.raster.line import Role
from amptui.ui.raster.numbers import bytes_size, number
from amptui.ui.raster.plot import Trace
from amptui.ui.raster.prose import Paragraph
from amptui.ui.session_view import SessionView
from amptui.ui.widgets.plot import PlotValue
from amptui.ui.widgets.timeline import TimelineValue


def last_step(view: SessionView) -> int:
    """The last planned step of the trial, of the stretch before there is one."""
    trial, project = view.state.trial, view.state.project
    planned = trial.started.iterations if trial is not None else project.iterations if project is not None else 1
    return max(planned - 1, 0)


def loss_plot(view: SessionView, update: str, glyphs: Glyphs = UNICODE) -> PlotValue:
    """The trial's loss over the baseline's."""
    trial, baseline = view.update(update, view.trial), view.update(update, view.baseline)
    value = number(trial.loss.value) if trial.loss.value is not None else ""
    return PlotValue(
        title=_titled("loss", view, update),
        notes=legend([("trial", "trial", False), ("FP32", "baseline", True)], glyphs),
        right=value,
        traces=[Trace(source=trial.loss), Trace(source=baseline.loss, role="baseline", dashed=True)],
        last=last_step(view),
    )


def norm_plot(view: SessionView, update: str, facts: UpdateFacts | None) -> PlotValue:
    """The norm of the whole unscaled gradient, with the clipping limit."""
    trial, baseline = view.update(update, view.trial), view.update(update, view.baseline)
    limits = (
        [] if facts is None or facts.clip_norm is None else [Limit(facts.clip_norm, f"clip {number(facts.clip_norm)}")]
    )
    return PlotValue(
        title=_titled("gradient norm", view, update),
        notes=[("unscaled", "dim")],
        right=number(trial.norm.value) if trial.norm.value is not None else "",
        traces=[Trace(source=trial.norm), Trace(source=baseline.norm, role="baseline", dashed=True)],
        last=last_step(view),
        limits=limits,
    )


def scale_plot(view: SessionView) -> PlotValue:
    """The loss scale as powers of two, and how far it is from growing."""
    trial = view.state.trial
    last = trial.run.last if trial is not None else None
    policy = view.state.policy
    if policy is not None and policy.effective_scaler is None:
        return PlotValue(title="scale", empty="no scaler: BF16 needs none", last=last_step(view))
    notes: list[tuple[str, Role]] = []
    scale = last.scale_after if last is not None else None
    held = trial.trips[-1].record if trial is not None and trial.trips and view.state.paused is not None else None
    if held is not None and (last is None or held.step > last.step):
        scale = held.scale
    elif last is not None and last.growth_interval:
        left = last.growth_interval - last.growth_tracker
        notes = [(f"grows after {left:,} more", "dim")]
    title = "scale" if scale is None else f"scale {scale_text(scale)}"
    return PlotValue(
        title=title,
        notes=notes,
        traces=[Trace(source=view.trial.scale, held=True)],
        scale="log2",
        last=last_step(view),
    )


def updates_timeline(view: SessionView, update: str, glyphs: Glyphs = UNICODE) -> TimelineValue:
    """Marks by iteration, counts, and below them learning rate, memory and speed."""
    trial = view.state.trial
    counts = trial.run.counts if trial is not None else {}
    parts: list[tuple[str, Role]] = []
    totals: tuple[tuple[int, str, Role], ...] = (
        (sum(count.applied for count in counts.values()), "applied", "good"),
        (sum(count.skipped for count in counts.values()), "skipped", "warn"),
        (sum(count.withheld for count in counts.values()), "withheld", "bad"),
    )
    for total, what, role in totals:
        if total or what == "applied":
            parts.append((f"{' ' + glyphs.separator + ' ' if parts else ''}{total:,} {what}", role if total else "dim"))
    return TimelineValue(
        title="updates", notes=parts, outcomes=view.trial.outcomes(), below=_figures(view, update, glyphs)
    )


def _figures(view: SessionView, update: str, glyphs: Glyphs) -> list[Paragraph | None]:
    last = view.update(update, view.trial).last
    if last is None:
        return []
    between = f" {glyphs.separator} "
    memory = view.trial.memory.value
    texts = [f"lr {number(last.learning_rate)}"]
    if memory:
        texts.append(f"memory {bytes_size(memory)}")
    if not math.isnan(view.trial.rate):
        texts.append(f"{number(round(view.trial.rate, 1))} it/s")
    return [Paragraph([(between.join(texts), "dim")])]


def trial_summary(view: SessionView) -> str:
    """`39 applied, 2 skipped` of the trial so far."""
    trial = view.state.trial
    counts = list(trial.run.counts.values()) if trial is not None else []
    return counted(sum(count.applied for count in counts), "update") + " applied"


def _titled(title: str, view: SessionView, update: str) -> str:
    return f"{title} · {update}" if len(view.update_names) > 1 else title
