"""The diagnosis of one failure: cause, place with its source, the way to what was seen, replays, and what to do."""

from __future__ import annotations

import math

from textual.app import ComposeResult

from amptui.findings.finding import Finding
from amptui.findings.telling import most_telling
from amptui.findings.words import counted, listed, op_words, scale_text
from amptui.project import Policy
from amptui.report.figures import figure, name, place, words
from amptui.report.page import LABEL, Mark, Page, cells
from amptui.ui.cause_words import cause
from amptui.ui.known_failures import KnownFailure, is_settling, known_failures
from amptui.ui.moves import active, regions_to_mend
from amptui.ui.session_view import SessionView
from amptui.ui.source_excerpt import excerpt
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.told import ToldPane

_REPLAYED: dict[str, tuple[Mark, str]] = {
    "fixed": ("ok", "Fixed: with the source as it is now, this iteration is finite."),
    "same": ("fail", "Not fixed: it fails in the same place as before."),
    "other_place": ("warn", "The first place is mended, and now it fails in another one."),
}


def tell_diagnosis(page: Page, view: SessionView, failure: KnownFailure | None, *, mend: str | None) -> None:
    """`failure` as far as it is known; `mend`: the key that runs the trial with modules in FP32, if one does."""
    if failure is None:
        page.line("Nothing has failed in this session so far.")
        return
    replayed = failure.replayed
    if failure.earlier is not None:
        trial = failure.earlier.number
        page.line((f"This is of trial {trial:,}, as it was found then; another trial has followed.", "dim"))
        page.blank()
    findings, variations = failure.findings, failure.variations
    fits = _smaller_scale_fits(variations)
    if replayed is not None:
        mark, said = _REPLAYED[replayed.outcome]
        page.marked(mark, (said, "bold"))
        if replayed.outcome != "fixed":
            page.field("replay", words(replayed.replayed))
            findings, fits = replayed.findings or findings, _smaller_scale_fits(replayed.variations)
        variations = replayed.variations or variations
        _tell_variations(page, variations)
        page.blank()
        if findings:
            page.line(("What it was" if replayed.outcome == "fixed" else "What it is", "bold"))
    policy = (failure.earlier.started.policy if failure.earlier is not None else view.state.policy) or Policy()
    for number, finding in enumerate(findings):
        if number:
            page.blank()
        _tell_finding(page, finding, failure, policy, fits=fits)
    if not findings:
        _tell_without_finding(page, view, failure)
    if replayed is None:
        _tell_variations(page, variations)
    if failure.tripped is not None:
        _tell_seen(page, failure)
    regions = regions_to_mend(view.state)
    if mend is not None and regions:
        page.blank()
        page.field(mend, f"repeats the trial with {listed([name(region) for region in regions])} in FP32")


def _smaller_scale_fits(variations: tuple[tuple[str, str], ...]) -> bool:
    return any(" at scale " in varied and happened.startswith("finite") for varied, happened in variations)


def _tell_finding(page: Page, finding: Finding, failure: KnownFailure, policy: Policy, *, fits: bool) -> None:
    """Cause, advice, place, source, the way to the symptom, evidence."""
    notice = finding.severity == "notice"
    if notice:
        page.marked("skipped" if is_settling(finding) else "warn", (words(_notice(finding, policy.dtype)), "bold"))
    else:
        page.marked("fail", (words(cause(finding, policy.dtype, smaller_scale_fits=fits)), "bold"))
    settles = not notice and fits and failure.tripped is not None and failure.tripped.record.skipped
    if settles:
        page.field("to do", "nothing at first: each skip halves the scale until it fits, and no weight is touched")
    if finding.advice:
        page.field("if it stays" if settles else "to do", words(finding.advice))
    if finding.fp32_ok is not None:
        page.field("in FP32", "does not happen" if finding.fp32_ok else "happens too: look at data, formula and loss")
    page.blank()
    page.field("where", " · ".join(_place(finding, failure)))
    if finding.line:
        page.field("line", place(finding.line))
        _tell_source(page, finding)
    page.blank()
    facts = finding.facts
    steps = []
    if facts.get("root_op"):
        root = " ".join(filter(None, (op_words(name(facts["root_op"])), _in(facts.get("root_module")), _at(facts))))
        steps.append(f"it begins with {root}")
    telling, more = most_telling(finding.evidence)
    steps += [words(fact) for fact in telling]
    reached = facts.get("reaches")
    if isinstance(reached, list | tuple) and reached:
        steps.append(f"what it reaches: {listed([name(one) for one in reached])}")
    for number, step in enumerate(steps):
        page.field("" if number else "how it went", step)
    if more:
        page.field("", (f"and {more} more in the report", "dim"))


def _notice(finding: Finding, dtype: str) -> str:
    """What happened, and why it is normal where that is known."""
    if not is_settling(finding):
        return f"A notice, nothing that failed. {cause(finding, dtype)}"
    scale, fits, skips = (finding.facts.get(name) for name in ("scale", "fitting_scale", "count"))
    at = f" {scale_text(scale)}" if isinstance(scale, float) else ""
    lower = f" {scale_text(fits)}" if isinstance(fits, float) else " a lower one"
    skipped = f"{counted(skips, 'update was', 'updates were')}" if isinstance(skips, int) else "The update was"
    return (
        f"The scaler did its normal work: at loss scale{at} a gradient was infinite, at{lower} it is finite. "
        f"{skipped} skipped while it lowered the scale, and no weight was touched."
    )


def _place(finding: Finding, failure: KnownFailure) -> list[str]:
    step = finding.step if finding.step is not None else failure.step
    parts = [finding.stage, *_parts(finding.case or failure.case, step, finding.update or failure.update)]
    parts += [f"module {name(finding.module)}" if finding.module else "", name(finding.op or "")]
    return [part for part in parts if part]


def _parts(case: str | None, step: int | None, update: str | None) -> list[str]:
    when = f"case {name(case)}" if case else f"step {step:,}" if step is not None else ""
    return [part for part in (when, f"update {name(update)}" if update else "") if part]


def _in(module: object) -> str:
    return f"in {name(module)}" if module else ""


def _at(facts: object) -> str:
    line = facts.get("root_line") if hasattr(facts, "get") else None
    return f"({place(line)})" if isinstance(line, str) and line else ""


def _tell_source(page: Page, finding: Finding) -> None:
    """The lines around, as they stand in the file now; else the line as it was when it ran."""
    lines = excerpt(finding.line or "")
    ran = finding.facts.get("source")
    ran = ran.strip() if isinstance(ran, str) else ""
    for line in lines:
        _tell_line(page, f"{line.number:>4}", line.text, here=line.here)
    if not lines and ran:
        _tell_line(page, "", ran, here=True)
    here = next((line.text.strip() for line in lines if line.here), None)
    if here is not None and ran and not (here.startswith(ran) or ran.startswith(here)):
        page.line((f"The file has changed since; what ran was: {ran}", "yellow"), indent=4)


def _tell_line(page: Page, number: str, text: str, *, here: bool) -> None:
    style = "bold" if here else "dim"
    page.columns([((">" if here else " ", style), 1), ((number, "dim"), 4), ((text, style), 0)], indent=LABEL)


def _tell_without_finding(page: Page, view: SessionView, failure: KnownFailure) -> None:
    """A trip that was not looked into, or a retained case alone."""
    if failure.tripped is not None:
        record = failure.tripped.record
        mark: Mark = "skipped" if record.skipped else "withheld"
        page.marked(mark, (words(failure.tripped.words), "bold"))
        page.field("in FP32", _fp32(view, record.update, record.step))
        if view.state.verdict is None:
            page.line("No single place was named here. The verdict's findings sum up all failures.", indent=4)
        return
    if failure.retained is not None:
        page.line("This iteration failed and was kept, so that it can be run again.")
        page.field("kept as", name(failure.retained))
        page.field("where", " · ".join(_parts(failure.case, failure.step, failure.update)))


def _fp32(view: SessionView, update: str, step: int) -> str:
    norms = view.update(update, view.baseline).layer_norms.get(step)
    if norms is None:
        return "the baseline did not run this iteration"
    finite = all(math.isfinite(norm) for norm in norms)
    return "the same iteration is finite" if finite else "not finite either: look at data and loss"


def _tell_variations(page: Page, variations: tuple[tuple[str, str], ...]) -> None:
    """The table of replays: the same iteration again, one thing varied at a time."""
    if not variations:
        return
    page.blank()
    page.line(("The same iteration again, with one thing varied", "bold"))
    width = min(max(cells(varied) for varied, _ in variations), page.width // 2)
    for varied, happened in variations:
        style = "green" if happened.startswith("finite") else "red" if happened.startswith("not") else ""
        page.columns([((varied, "dim"), width), ((happened, style), 0)], indent=4)


def _tell_seen(page: Page, failure: KnownFailure) -> None:
    """What showed it: the update that the guard held back."""
    assert failure.tripped is not None
    record = failure.tripped.record
    page.blank()
    page.line(("What was seen", "bold"))
    if failure.findings:
        page.field("the guard", words(failure.tripped.words))
    page.field("loss", figure(record.loss))
    page.field("norm", f"{figure(record.norm)} · loss scale {scale_text(record.scale)}")
    if record.bad:
        page.field("not finite", listed([name(bad) for bad in record.bad], 6))
    if failure.retained is not None:
        page.field("kept as", name(failure.retained))


class DiagnosisStage(Stage):
    #: Which of the known failures is shown.
    chosen = 0

    def compose(self) -> ComposeResult:
        yield ToldPane(self.look, id="diagnosis-told")

    def show(self, shown: Shown) -> None:
        view, state = shown.view, shown.view.state
        failures = known_failures(state)
        self.chosen = min(self.chosen, max(len(failures) - 1, 0))
        failure = failures[self.chosen] if failures else None
        keys = shown.situation.keys
        count = keys.say("   {nth} of {all}, {diagnose}: next", nth=self.chosen + 1, all=len(failures))
        title = f"diagnosis{count if len(failures) > 1 else ''}"
        mend = keys.say("{mend}") if "mend" in active(shown.situation) else None
        trial = state.trial
        version = (
            trial.trips if trial is not None else None,
            trial.diagnoses if trial is not None else None,
            state.verdict,
            state.retained,
            state.replayed,
            state.refusal,
            mend,
        )
        self.query_one(ToldPane).show(title, version, lambda page: tell_diagnosis(page, view, failure, mend=mend))
