"""Stage 6, Measure: the policies side by side, and of one of them time, memory, effect, precision, forecast."""

from __future__ import annotations

from textual.app import ComposeResult

from amptui.findings.foreseen import place_name
from amptui.findings.policies import TrialSummary, policy_name
from amptui.findings.words import counted, scale_text
from amptui.project import Policy
from amptui.protocol.events import PrecisionMapped
from amptui.report import told_measure
from amptui.report.figures import name, size, words
from amptui.report.page import LABEL, Page
from amptui.report.told_trial import policy_text
from amptui.session.side_by_side import recommendation, seed_claims, summary
from amptui.session.state import SessionState, TrialState
from amptui.ui.key_names import AS_DECLARED, KeyNames
from amptui.ui.moves import to_measure
from amptui.ui.raster.line import Role
from amptui.ui.raster.table import Table, TableColumn, TableRow
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.table import TablePane
from amptui.ui.widgets.told import ToldPane

#: All of them fit into 80 cells: `reject: difference` takes 18.
COLUMNS = (
    TableColumn(title="policy", width=11),
    TableColumn(title="verdict"),
    TableColumn(title="applied", width=7, align="right", digits=5),
    TableColumn(title="skip", width=4, align="right", digits=4),
    TableColumn(title="scale", width=5, align="right"),
    TableColumn(title="quality", width=7, align="right", digits=4),
    TableColumn(title="speed", width=5, align="right"),
    TableColumn(title="memory", width=6, align="right"),
)
_SHORT = {"float16": "fp16", "bfloat16": "bf16"}
_ROLES: dict[str | None, Role] = {"accept": "good", "reject": "bad", "inconclusive": "warn"}
_BAR = 24
_NOT_YET = (
    "Not measured yet. FP32 and the policy take turns on the same batches, from the same weights, without hooks, "
    "guards or reads by the host, for about 20 seconds. FP32 runs twice in each round: how far two equal runs are "
    "apart is the noise, and no gain is stated that is smaller."
)
_ONLY_WHAT_HOLDS = "Only what holds is measured: speed is no reason to take a policy that its own criteria turned down."


# The table.


def policies_table(state: SessionState) -> Table:
    """One row a trial, in their order; those of an engine before this one are dim."""
    rows = [_row(state, number, trial) for number, trial in enumerate(state.trials)]
    return Table(columns=COLUMNS, rows=rows, empty="the trials show here, one row each")


def _row(state: SessionState, number: int, trial: TrialState) -> TableRow:
    told = summary(state, trial)
    earlier = number < state.earlier_trials
    return TableRow(
        id=str(number),
        values=(
            short_name(told.policy),
            _verdict(told, trial),
            sum(count.applied for count in told.counts) if told.counts else None,
            sum(count.skipped + count.withheld for count in told.counts) if told.counts else None,
            scale_text(told.scaler.final) if told.scaler is not None else None,
            told.quality,
            _speed(told),
            _memory(told),
        ),
        role="dim" if earlier else _ROLES.get(told.verdict, "text"),
    )


def short_name(policy: Policy) -> str:
    """`fp16@2^10`, `bf16`; `fp16+2 FP32` with two FP32 regions."""
    short = policy_name(policy).partition(" ")[0].replace(policy.dtype, _SHORT[policy.dtype])
    return f"{short}+{len(policy.fp32_regions)} FP32" if policy.fp32_regions else short


def _verdict(told: TrialSummary, trial: TrialState) -> str:
    if told.verdict is None:
        return "no verdict yet" if trial.done is None else "no verdict"
    if not told.failed:
        return told.verdict
    return f"{told.verdict}: {told.failed[0] if len(told.failed) == 1 else f'{len(told.failed)} criteria'}"


def _speed(told: TrialSummary) -> str:
    claim = told.claim("time")
    if claim is None:
        return ""
    return "same" if claim.direction == "none" or claim.figure is None else f"{claim.figure:.2f}×"


def _memory(told: TrialSummary) -> str:
    claim = told.claim("memory")
    if claim is None:
        return ""
    return "same" if claim.direction == "none" or claim.figure is None else f"{claim.figure - 1.0:+.0%}"


# One trial.


def tell_measure_stage(page: Page, state: SessionState, trial: TrialState | None, keys: KeyNames = AS_DECLARED) -> None:
    """Of `trial`: what was measured, or why nothing; and what ran in which dtype, beside the forecast."""
    if state.stages.get("measure") == "running" and state.progress is not None:
        _tell_progress(page, state)
    if trial is None:
        page.line("Time and memory are measured of a policy that was accepted: the trial (4) comes first.")
        return
    advised = recommendation(state)
    if advised is not None and (len(state.trials) > 1 or state.measured):
        page.field("advice", (words(advised.words), "bold"), mark="ok" if advised.trial is not None else "told")
        page.blank()
    measured = state.measured.get(trial.number)
    if measured is not None:
        told_measure.tell_claims(page, measured.claims)
        told_measure.tell_same_cases(page, measured)
        told_measure.tell_figures(page, measured)
    else:
        _tell_unmeasured(page, trial, keys)
    _tell_seeds(page, state, trial)
    mapped = state.precision.get(trial.number)
    if mapped is not None:
        told_measure.tell_precision(page, mapped, state)
        _tell_modules(page, mapped)


def _tell_progress(page: Page, state: SessionState) -> None:
    progress = state.progress
    assert progress is not None
    done = max(0, min(_BAR, _BAR * progress.done // max(progress.total, 1)))
    most = " at most" if state.task == "time" else ""
    bar: list[tuple[str, str] | str] = [("━" * done, "green"), ("─" * (_BAR - done), "dim")]
    page.field("running", *bar, f"  {name(progress.what)}: {progress.done:,} of {progress.total:,}{most}")
    page.blank()


def _tell_unmeasured(page: Page, trial: TrialState, keys: KeyNames) -> None:
    page.field("policy", policy_text(trial.started.policy))
    reached = trial.verdict
    if reached is None:
        page.line("This trial has no verdict, so there is nothing to measure.")
        return
    if reached.verdict == "accept":
        page.line(_NOT_YET)
        return
    page.line(words(reached.words))
    page.line(_ONLY_WHAT_HOLDS)
    page.blank()
    page.line("What may help:")
    if reached.fp32_regions:
        page.field(keys.say("{mend}"), f"the trial again with {', '.join(map(name, reached.fp32_regions))} in FP32")
    if reached.findings or trial.trips:
        page.field(keys.say("{diagnose}"), "the cause, its place, and what mends it")
    page.field(keys.say("{policies}"), f"another policy under the same criteria{_other(trial)}")


def _other(trial: TrialState) -> str:
    return ", such as bfloat16, which has FP32's range" if trial.started.policy.dtype == "float16" else ""


def _tell_seeds(page: Page, state: SessionState, trial: TrialState) -> None:
    claims = seed_claims(state, trial)
    if state.seeds is None or not claims:
        return
    page.blank()
    seeds = counted(state.seeds.seeds, "other seed")
    page.field("yardstick", f"the FP32 stretch under {seeds}: other draws, batches in another order")
    told_measure.tell_claims(page, claims)


def _tell_modules(page: Page, mapped: PrecisionMapped) -> None:
    """The map of precision: which ops ran in which dtype, by module."""
    if not mapped.modules:
        return
    page.blank()
    page.line(("In which dtype each module ran", "bold"), " (one window, forward and backward)", indent=LABEL)
    for module in mapped.modules:
        ops = ", ".join(f"{count:,} {name(dtype)}" for dtype, count in module.ops.items())
        casts = f"{counted(module.casts, 'cast')}, {size(module.cast_bytes)}" if module.casts else ""
        own = f"{counted(module.own_casts, 'cast')} of your own" if module.own_casts else ""
        said = " · ".join(part for part in (casts, own) if part)
        page.columns([(name(place_name(module.path)), 22), (ops, 26), (said, 0)], indent=LABEL)


class MeasureStage(Stage):
    def compose(self) -> ComposeResult:
        yield TablePane(self.look, id="measure-policies")
        yield ToldPane(self.look, id="measure-told")

    def show(self, shown: Shown) -> None:
        state = shown.view.state
        table = self.query_one(TablePane)
        table.show(policies_table(state))
        trial, keys = _chosen(state, table), shown.situation.keys
        title = f"measure   {name(short_name(trial.started.policy))}" if trial is not None else "measure"
        version = (
            trial,
            state.progress if state.stages.get("measure") == "running" else None,
            state.stages.get("measure"),
            state.seeds,
            len(state.trials),
            *state.measured.values(),
            *state.precision.values(),
        )
        self.query_one(ToldPane).show(title, version, lambda page: tell_measure_stage(page, state, trial, keys))


def _chosen(state: SessionState, table: TablePane) -> TrialState | None:
    """The trial under the cursor, else the one that is timed or was timed last, else the last one."""
    row = table.selected
    if row is not None and int(row.id) < len(state.trials):
        return state.trials[int(row.id)]
    if state.task != "time":
        return state.trial
    if state.stages.get("measure") == "running":
        return to_measure(state)
    last = list(state.measured)[-1:]
    return next((trial for trial in reversed(state.trials) if [trial.number] == last), state.trial)
