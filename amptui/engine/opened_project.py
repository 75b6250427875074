"""Opens the project that a command names: loaded, checked, frozen, its FP32 checkpoint on disk, one window run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from amptui.engine import opening, way_back
from amptui.engine.bench import Bench
from amptui.engine.criteria import WrittenCriteria
from amptui.engine.environment import environment
from amptui.engine.identity import noted_changes
from amptui.engine.live import LiveProject
from amptui.engine.precision import PrecisionSettings
from amptui.engine.preflight import preflight, probe_dtypes
from amptui.engine.refusals import Refusal
from amptui.engine.snapshot import Snapshot
from amptui.protocol.codec import encode
from amptui.protocol.commands import OpenProject
from amptui.protocol.events import Event, Progressed, ProjectOpened
from amptui.session.folder import SessionFolder
from amptui.session.manifest import CheckpointRecord
from amptui.session.store import OPENED_WITH, Store
from amptui.spec.reference import parse_reference
from amptui.spec.resolve import LoadedProject, load_project
from amptui.spec.run_settings import policy_over


@dataclass(frozen=True, eq=False)
class OpenedProject:
    """What every later stage starts from."""

    bench: Bench
    checkpoint: CheckpointRecord
    criteria: WrittenCriteria


def opened_project(
    command: OpenProject,
    *,
    folder: SessionFolder,
    store: Store | None,
    emit: Callable[[Event], object],
    between: Callable[[], None],
) -> OpenedProject:
    """Carries out `command`; raises what `ended_stages` tells of, wherever the project cannot be judged as it is."""
    home = Path(command.folder)
    reference = parse_reference(command.spec, folder=home)
    loaded = load_project(reference, command.arguments, folder=Path(command.app_dir) if command.app_dir else home)
    criteria = WrittenCriteria.of(loaded.project, command)
    policy = policy_over(loaded.project.policy, command.policy)
    live = opening.open_project(
        loaded.project,
        device=command.device,
        iterations=command.iterations,
        title=reference.title,
        regions=policy.fp32_regions,
        folder=folder.batches,
        on_progress=lambda done, total: emit(Progressed(stage="project", what="batches", done=done, total=total)),
    )
    checkpoint = way_back.taken_up(live, folder, store, emit)
    start = _snapshot(live)
    bench = Bench(
        live=live,
        start=start,
        rng=start.rng,
        precision=PrecisionSettings.current(),
        policy=policy,
        folder=folder,
        emit=emit,
        between=between,
    )
    told = _told(bench, command, loaded, criteria)
    emit(told)
    if checkpoint is None:
        checkpoint = way_back.written(live, folder, store, emit)
    if store is not None and not command.aside:
        store.put_meta(OPENED_WITH, encode(command))
        for remark in noted_changes(store, told.digests):
            emit(remark)
    preflight(bench)
    probe_dtypes(bench)
    return OpenedProject(bench, checkpoint, criteria)


def _snapshot(live: LiveProject) -> Snapshot:
    try:
        return Snapshot.take(live.state)
    except TypeError as error:
        raise Refusal("state", str(error), hint="amptui must be able to put back all that a run changes") from error
    except RecursionError as error:
        said = "a state is nested without end: something in extra_state, an optimizer or a scheduler contains itself"
        raise Refusal("state", said, hint="keep such a reference out of the state") from error


def _told(bench: Bench, command: OpenProject, loaded: LoadedProject, criteria: WrittenCriteria) -> ProjectOpened:
    live = bench.live
    return ProjectOpened(
        name=live.name,
        spec=command.spec,
        defined_at=str(loaded.defined_at),
        modules=opening.module_facts(live),
        parameters=sum(p.numel() for module in live.modules.values() for p in module.parameters()),
        updates=tuple(update.facts for update in live.updates),
        cases=opening.case_facts(live),
        batches=len(live.batches.batches) + live.batches.remainder,
        iterations=live.batches.iterations if live.updates else 0,
        remainder=live.batches.remainder,
        policy=bench.policy,
        criteria=criteria.criteria,
        digests=opening.digests(live, opening.source_digests(live, loaded.sources)),
        has_decide=live.project.decide is not None,
        has_quality=live.project.quality is not None,
        environment=environment(live.device, Path(command.folder)),
    )
