"""What was judged and on what: the project, its updates, the policy, device, versions, digests."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.findings.words import counted, scale_text
from amptui.project import Policy
from amptui.protocol.events import ProjectOpened
from amptui.protocol.facts import Environment, UpdateFacts
from amptui.report.document import Block, Code, Column, Facts, Section, Table, Words
from amptui.report.figures import figure, name, place
from amptui.report.recorded import Recorded


def conditions_section(recorded: Recorded) -> Section | None:
    state = recorded.state
    blocks: list[Block] = []
    if recorded.policy is not None:
        blocks.append(_policy(recorded.policy))
    if state.project is not None:
        blocks += [_project(state.project), *([_updates(state.project)] if state.project.updates else [])]
    environment = state.project.environment if state.project is not None else state.environment
    if environment is not None:
        blocks.append(_environment(environment))
    if state.project is not None:
        blocks.append(_digests(state.project))
    return Section("conditions", "Policy, project, environment", blocks) if blocks else None


def _policy(policy: Policy) -> Table:
    scaler = policy.effective_scaler
    lines: list[Sequence[Words]] = [
        ("Autocast", policy.dtype if policy.autocast else f"off ({policy.dtype})"),
        ("Modules in FP32", _codes(policy.fp32_regions) if policy.fp32_regions else "none"),
        ("Loss scaler", "on" if scaler is not None else "none"),
    ]
    if scaler is not None:
        lines += [
            ("Initial scale", f"{scale_text(scaler.init_scale)} ({figure(scaler.init_scale)})"),
            ("Backs off by", figure(scaler.backoff_factor)),
            ("Grows by", f"{figure(scaler.growth_factor)} after {counted(scaler.growth_interval, 'clean iteration')}"),
        ]
    skipped = "go back to what they were" if policy.buffers == "rollback" else "stay as the forward left them"
    lines.append(("Buffers of a skipped update", skipped))
    return Table("Policy", (Column("Setting"), Column("Value")), lines)


def _project(project: ProjectOpened) -> Table:
    tags = [f"{sum(case.tag == tag for case in project.cases):,} {tag}" for tag in _tags(project)]
    asked = ["outputs", *["decisions"] * project.has_decide, *["quality"] * project.has_quality]
    lines: list[Sequence[Words]] = [
        ("Name", name(project.name)),
        ("Entry", Code(project.spec)),
        ("Defined at", Code(place(project.defined_at)) if project.defined_at else "not known"),
        ("Model", f"{counted(len(project.modules), 'module')}, {counted(project.parameters, 'parameter')}"),
        ("Cases", ", ".join(tags) or "none"),
        ("Cases are judged by", ", ".join(asked) if project.cases else "nothing: there are none"),
        ("Batches", f"{project.batches:,}{_remainder(project.remainder)}"),
        ("Iterations of the stretch", f"{project.iterations:,}"),
    ]
    return Table("Project", (Column("What"), Column("As it was opened")), lines)


def _remainder(count: int) -> str:
    return f", of which {count:,} at the end fill no window and were not run" if count else ""


def _tags(project: ProjectOpened) -> list[str]:
    return list(dict.fromkeys(case.tag for case in project.cases))


def _updates(project: ProjectOpened) -> Table:
    lines: list[Sequence[Words]] = [
        (
            name(update.name),
            f"{update.optimizer}{' (fused)' if update.fused else ''}",
            f"{update.parameters:,}",
            _window(update),
            _clipping(update),
            _schedule(update),
            Code(place(update.loss_at)) if update.loss_at else "",
        )
        for update in project.updates
    ]
    columns = (
        Column("Update"),
        Column("Optimizer"),
        Column("Parameters", number=True),
        Column("Takes part"),
        Column("Clipping"),
        Column("Scheduler"),
        Column("Loss"),
    )
    return Table("Updates", columns, lines)


def _window(update: UpdateFacts) -> str:
    every = f"in one iteration of {update.every:,}" if update.every > 1 else "in every iteration"
    batches = f", {update.reduce} of {update.accumulate:,} batches" if update.accumulate > 1 else ""
    return every + batches


def _clipping(update: UpdateFacts) -> str:
    if update.clip_norm is not None:
        return f"norm to {figure(float(update.clip_norm))}"
    return f"values to {figure(float(update.clip_value))}" if update.clip_value is not None else "none"


def _schedule(update: UpdateFacts) -> str:
    if update.scheduler is None:
        return "none"
    every = f" every {update.scheduler_every:,} applied updates" if update.scheduler_every > 1 else ""
    return f"{update.scheduler}{every}"


def _environment(environment: Environment) -> Table:
    commit = environment.git_commit
    changed = " with changes that are not committed" if environment.git_dirty else ""
    lines: list[Sequence[Words]] = [
        ("Device", f"{environment.device} ({name(environment.device_name)})"),
        ("Accelerator", name(environment.accelerator) if environment.accelerator else "none"),
        ("Threads", f"{environment.threads:,}"),
        ("torch", name(environment.torch)),
        ("Python", name(environment.python)),
        ("NumPy", name(environment.numpy) if environment.numpy else "not installed"),
        ("Platform", name(environment.platform)),
        ("Commit", (Code(commit), changed) if commit else "not in a Git repository"),
        *((name(key), name(value)) for key, value in environment.precision.items()),
    ]
    note = "Precision settings are the project's own, as found. The trial had them; true FP32 switches them off."
    return Table("Environment", (Column("What"), Column("As found")), lines, note)


def _digests(project: ProjectOpened) -> Facts:
    digests = project.digests
    return Facts(
        [
            ("SHA-256 of weights", Code(digests.weights)),
            ("SHA-256 of cases", Code(digests.cases)),
            ("SHA-256 of batches", Code(digests.batches)),
            *((f"SHA-256 of {place(path)}", Code(digest)) for path, digest in digests.sources.items()),
        ]
    )


def _codes(paths: Sequence[str]) -> Words:
    pieces: list[str | Code] = []
    for path in paths:
        pieces += [", ", Code(path)] if pieces else [Code(path)]
    return tuple(pieces)
