"""What the explanation pane teaches: why each stage exists, and what each phase of an AMP iteration does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amptui.findings.words import scale_text
from amptui.protocol.facts import PhaseName
from amptui.ui.moves import Situation
from amptui.ui.pages import Page


def _paragraphs(text: str) -> tuple[str, ...]:
    """The paragraphs of `text`, which blank lines part; line breaks inside of one are blanks."""
    return tuple(" ".join(part.split()) for part in text.strip().split("\n\n"))


_STAGES: Mapping[str, tuple[str, ...]] = {
    "project": _paragraphs("""
        amptui runs your own model, loss, optimizer and data in a separate process, with your interpreter
        and torch. It changes nothing on disk but its session folder.

        Before anything trains, weights, buffers, optimizer, schedulers and random state are saved as one
        checkpoint and read back to prove it. {fall_back} returns to it from then on.

        The batches are drawn once and frozen: FP32 and the trial see the same data in the same order with
        the same random numbers, so that what differs is the arithmetic.
    """),
    "baseline": _paragraphs("""
        Without a baseline nobody can say whether a NaN or a changed decision comes from FP16 or was there
        before.

        True FP32 means: no autocast, no TF32, no reduced-precision reductions. The first iterations run
        twice from the same checkpoint; if they differ, the code is not deterministic and a difference to
        FP16 proves little.

        The noise of two equal runs is the floor under every tolerance: nothing below it can be told apart.
    """),
    "criteria": _paragraphs("""
        Limits are written down before the trial, because after it every number looks acceptable.

        Proposals follow the dtype: FP16 keeps 11 significant bits (about 3 digits, up to 65504), BF16 keeps
        8 (about 2 digits, with FP32's range). A tolerance is a few such roundings of the largest value in
        the baseline.

        An output passes where |trial − baseline| ≤ atol + rtol × |baseline|. Decisions must stand exactly,
        unless you allow changes.
    """),
    "trial": _paragraphs("""
        Autocast runs matrix products and convolutions in the half type, and keeps in FP32 what needs range
        or digits: softmax, log, exp, norms, losses. Weights stay FP32; each op casts what it needs.

        Small gradients round to zero in FP16. The scaler multiplies the loss (by 65536 at first) so that
        they survive, divides the gradients again before the step, and halves the factor when one of them
        overflows.

        A skipped update is this search at work: normal in the first steps and now and then later. It is a
        problem if it goes on, or if the gradient is infinite at every scale.
    """),
    "verdict": _paragraphs("""
        Accept: every locked criterion held. Reject: one failed, or something needs mending first.
        Inconclusive: what would decide is missing, such as a baseline that is finite and repeatable.

        Numbers can fail while every decision holds; this is still a reject, and is said as such with the
        smallest margin.

        A run that you steered (retry, another policy) is marked: an unattended run confirms it.
    """),
    "measure": _paragraphs("""
        A half type pays only where the hardware has units for it, and where the work is large enough to
        fill them. Many ops of a small model only gain casts.

        Only after acceptance, because speed is no reason to take what failed, and because it must not tempt
        one to bend the criteria.

        FP32 and the policy take turns in random order. One after the other, a clock that falls or a
        neighbour on the machine would count for or against whoever ran then.

        A spread is the middle half of the values, between the quartiles. FP32 runs twice in each round: two
        equal runs differ by the noise, and a gain that is smaller is not stated.

        Other seeds ({yardstick}) repeat the FP32 stretch with other random numbers. A difference that another seed
        makes as well says nothing about the policy.

        Further policies ({policies}) are held to the same criteria. One that is thought of after a trial has run
        counts as an intervention, for whoever tries many will find one that passes; an unattended run ({unattended})
        confirms it.
    """),
    "report": _paragraphs("""
        The report says on what the verdict rests: rows, cases, criteria with every revision, versions,
        digests. Whoever reads it can judge without running anything.

        It claims no more than what was run: this device, these versions, these batches and cases, this many
        iterations, amptui's training step. What was not run is listed.

        The code to paste is the trial's training step in plain PyTorch. On the trial's batches and random
        numbers it gives the trial's weights bit for bit.

        The session's folder holds every event, the locked criteria, the checkpoint and the failing
        iterations. amptui open shows it again on any machine, without torch.
    """),
    "diagnosis": _paragraphs("""
        A diagnosis looks for the origin: the first operation whose result went bad, which is often not where
        it was seen. An infinity in a gradient may begin in a square many modules before.

        The failing iteration was kept, and is run again while every operation is watched; then once more with
        one thing varied: true FP32, another dtype, another loss scale. What mends it tells what it was.

        There are three honest outcomes: reproduced bit for bit, reproduced with other bits, and not reproduced.
        No origin is shown from a replay that did not fail.

        What to do stands under "to do". Where FP32 fails too, the precision is not the cause: look at data,
        formula and loss. Where it does not: mend the line ({edit}, then {reload} tries it), or keep the
        module in FP32 ({mend}). A skip that a smaller scale mends needs nothing: {proceed} goes on.
    """),
    "cases": _paragraphs("""
        Cases decide what the verdict is about. The smallest margins are where a half type can change a
        decision (boundary); the largest activations, the longest, the empty and the fully masked input are
        where it can break (edge).

        They are found in your own batches by running them in FP32; nothing is judged here. What you take
        over is judged from the next run on.
    """),
}

_PHASES: Mapping[PhaseName, tuple[str, ...]] = {
    "zero_grad": _paragraphs("""
        zero_grad clears the gradients of this update's parameters, so that only this window counts.
    """),
    "forward": _paragraphs("""
        forward runs model and loss under autocast: products and convolutions in the half type, sums, norms
        and losses in FP32. A value above 65504 becomes infinite in FP16 here.
    """),
    "check_loss": _paragraphs("""
        check_loss looks at the loss alone. If it is not finite already, no gradient can be.
    """),
    "backward": _paragraphs("""
        backward computes gradients of loss × scale. Scaled up, small gradients stay above FP16's smallest
        number (6e-8); too high a scale makes large ones infinite.
    """),
    "unscale": _paragraphs("""
        unscale divides the gradients by the scale, in FP32, and notes whether any is infinite or NaN. From
        here on they are comparable with FP32's, and clipping means what it says.
    """),
    "check_grads": _paragraphs("""
        check_grads reads every layer's norm at once. Where something is not finite the guard keeps the
        optimizer from stepping, and the weights stay as they are.
    """),
    "clip": _paragraphs("""
        clip limits the norm of the whole gradient. It must come after unscale: clipping scaled gradients
        would clip by the scale.
    """),
    "step": _paragraphs("""
        step is the optimizer's: the only phase that changes weights. It runs on finite gradients alone.
    """),
    "update_scale": _paragraphs("""
        update_scale halves the scale after an overflow; after 2000 clean iterations in a row it doubles it
        again, to keep as many small gradients as possible.
    """),
    "scheduler": _paragraphs("""
        scheduler moves the learning rate, and only when the update was applied: a skipped update must not
        count.
    """),
}

_SKIP = _paragraphs("""
    Why it was skipped: an infinite gradient would write infinity or NaN into every weight it touches. The
    scaler's rule is to leave this update out and to halve the scale.

    Normal in the first iterations, while the scale comes down from 65536 to what the model allows, and about
    once in 2000 later, when it tries a higher one. Not normal: many in a row, or at a scale near 1.
""")
_WITHHELD = _paragraphs("""
    The guard held back what the plain loop would have applied: the scaler's own check found nothing, but
    writing this would have damaged the weights. This is worth a diagnosis.
""")


def explanation(now: Situation) -> tuple[str, Sequence[str]]:
    """Title and paragraphs for what is on the screen: the trip, the phase, or the stage."""
    title, paragraphs = _explanation(now)
    return title, tuple(now.keys.say(text) for text in paragraphs)


def _explanation(now: Situation) -> tuple[str, Sequence[str]]:
    trial = now.state.trial
    page: Page = now.page
    if page == "trial" and trial is not None and now.state.paused is not None:
        if now.trip_waits:
            skipped = trial.trips[-1].record.skipped
            return ("why this update was skipped" if skipped else "why it was held back"), (
                _SKIP if skipped else _WITHHELD
            )
        if trial.phases:
            phase = trial.phases[-1]
            return f"what {phase.phase} does", (*_PHASES[phase.phase], *_scale_note(now), *_STAGES["trial"])
    return f"why: {page}", _STAGES.get(
        page, ("Press {stage_1} to {stage_7} for a stage, then {explain} for what it is for.",)
    )


def _scale_note(now: Situation) -> tuple[str, ...]:
    trial = now.state.trial
    last = trial.run.last if trial is not None else None
    if last is None or not last.growth_interval:
        return ()
    left = last.growth_interval - last.growth_tracker
    return (
        f"The scale is {scale_text(last.scale_after)}; it doubles after {left:,} more iterations without an overflow.",
    )
