"""From a path to an `Inspection`: open, survey, read values, judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from amptui.findings.finding import Finding
from amptui.inspection.containers.dcp import ShardBytes
from amptui.inspection.containers.loaded import Loaded, TensorBytes
from amptui.inspection.containers.source import DamagedError, UnreadableError
from amptui.inspection.known_globals import graded
from amptui.inspection.layouts import Layout
from amptui.inspection.notes import fault
from amptui.inspection.numbers import NumberReader
from amptui.inspection.opening import LimitError, Opened, open_checkpoint
from amptui.inspection.pickle_walk import Code
from amptui.inspection.result import Inspection, Steps, TensorFact, unread
from amptui.inspection.roles import is_buffer
from amptui.inspection.rules import Evidence, findings_of
from amptui.inspection.rules.evidence import Precision, precision_of
from amptui.inspection.rules.tensor_rules import is_deliberate
from amptui.inspection.survey import SeenTensor, Sightings, survey
from amptui.inspection.values import Damage, Progress, Values, scan

#: Checkpoints up to this size have their values read without being asked.
SMALL = 64 << 20
_MAX_DAMAGE_FINDINGS = 10
_COPY_AGAIN = "Copy the file again from where it was written; do not resume from this copy."


def inspect_path(
    path: str,
    *,
    values: bool = False,
    structure_done: Callable[[Inspection], object] | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Look into the checkpoint at `path`; never raises for what is there or is not.

    With `values`, or where the checkpoint is small, tensor values are read; `structure_done` then gets the inspection
    without them beforehand, unless that is small. LimitError may be raised into it from outside at any time.
    """
    try:
        with open_checkpoint(Path(path)) as opened:
            return _inspect(path, opened, values, structure_done, progress)
    except UnreadableError as error:
        advice = "Give the path of a checkpoint: a file, or the folder that holds its files."
        return unread(path, "unreadable", str(error), advice)
    except LimitError as error:
        return unread(path, "limit", str(error), "The file is not like any that training writes: do not load it.")


def _inspect(
    path: str,
    opened: Opened,
    values: bool,
    structure_done: Callable[[Inspection], object] | None,
    progress: Progress | None,
) -> Inspection:
    seen = _Survey(opened)
    size = sum(loaded.size for loaded in opened.files.values())
    if not seen.wanted or not (values or size <= SMALL):
        return _assembled(path, opened, seen, None)
    if size > SMALL and structure_done is not None:
        structure_done(_assembled(path, opened, seen, None))
    stats = list(scan([(tensor.tensor, data) for tensor, data in seen.wanted], progress))
    return _assembled(path, opened, seen, stats)


class _Survey:
    """All files' sightings as one, and which bytes each tensor has."""

    def __init__(self, opened: Opened) -> None:
        self.sightings = Sightings()
        self.wanted: list[tuple[SeenTensor, TensorBytes]] = []
        self.without_data: list[SeenTensor] = []
        self.problems: list[Finding] = []
        self.stopped = opened.stopped
        try:
            for name, loaded in opened.files.items():
                if loaded.root is not None:
                    found = survey(loaded.root, NumberReader(loaded.data), name)
                    self._add(found)
                    self._place(found.tensors, loaded)
        except LimitError as error:
            self.stopped = str(error)

    def _add(self, found: Sightings) -> None:
        own = self.sightings
        own.tensors += found.tensors
        own.scalers += found.scalers
        own.optimizers += found.optimizers
        own.schedulers += found.schedulers
        own.data += found.data
        own.settings += found.settings
        own.scaler_is_none += found.scaler_is_none
        own.rows += found.rows
        own.devices |= found.devices
        own.cut = own.cut or found.cut
        for kind, places in found.rng.items():
            own.rng.setdefault(kind, []).extend(places)

    def _place(self, tensors: Iterable[SeenTensor], loaded: Loaded) -> None:
        """Pair tensors with their data, and check that all of it is there (of shards, only when values are read)."""
        data, checked = loaded.data, set()
        for seen in tensors:
            storage = seen.tensor.storage
            if seen.tensor.problem:
                what = f"{seen.path}: {seen.tensor.problem}"
                self._problem(fault("tensor-claim", what, advice=_COPY_AGAIN, path=seen.path))
            if storage is None or data is None or seen.tensor.problem:
                self.without_data.append(seen)
                continue
            if storage.key not in checked and not isinstance(data, ShardBytes):
                checked.add(storage.key)
                try:
                    data.locate(storage)
                except DamagedError as error:
                    self._problem(fault("damaged", f"{seen.path}: {error}", advice=_COPY_AGAIN, path=seen.path))
                    self.without_data.append(seen)
                    continue
            self.wanted.append((seen, data))

    def _problem(self, finding: Finding) -> None:
        if len(self.problems) < _MAX_DAMAGE_FINDINGS:
            self.problems.append(finding)


def _assembled(path: str, opened: Opened, seen: _Survey, stats: Sequence[Values | Damage | None] | None) -> Inspection:
    """The inspection, with the tensors' values where `stats` has them (one for each wanted tensor)."""
    sightings, layout = seen.sightings, opened.layout
    tensors = [_fact(tensor, None) for tensor in seen.without_data]
    damaged: dict[str, list[str]] = {}
    for index, (tensor, _) in enumerate(seen.wanted):
        result = stats[index] if stats is not None else None
        if isinstance(result, Damage):
            damaged.setdefault(result.problem, []).append(tensor.path)
            result = None
        tensors.append(_fact(tensor, result))
    precision = precision_of(sightings, tensors)
    present = _present(sightings, tensors)
    missing = _missing(present, precision, sightings, layout)
    steps = _steps(layout, sightings)
    code = Code()
    for loaded in opened.files.values():
        code.add(loaded.code)
    grades = graded(code.globals)
    evidence = Evidence(
        layout=layout,
        sightings=sightings,
        tensors=tensors,
        steps=steps,
        precision=precision,
        grades=grades,
        code=code,
        missing=missing if any(loaded.readable for loaded in opened.files.values()) else (),
    )
    stopped = [_stopped(seen.stopped)] if seen.stopped else []
    own = [*stopped, *opened.findings, *seen.problems, *_damage(damaged)]
    judged = findings_of(evidence)
    dangerous = [finding for finding in judged if finding.facts.get("code") == "dangerous-code"]
    findings = sorted(
        [*dangerous, *own, *(f for f in judged if f not in dangerous)], key=lambda finding: finding.severity == "notice"
    )
    return Inspection(
        path=path,
        format=layout.name,
        title=layout.title,
        container=opened.container,
        files=tuple(name for name in opened.files if name),
        size=sum(loaded.size for loaded in opened.files.values()),
        readable=any(loaded.readable for loaded in opened.files.values()),
        complete=opened.complete and not seen.stopped and not seen.problems and not damaged,
        scalers=tuple(sightings.scalers),
        steps=steps,
        dtypes=_dtypes(tensors),
        values_read=stats is not None,
        nonfinite=tuple(tensor.path for tensor in tensors if tensor.nonfinite and not is_deliberate(tensor)),
        zero=tuple(tensor.path for tensor in tensors if tensor.zero),
        present=present,
        missing=tuple(evidence.missing),
        learning_rates=tuple(dict.fromkeys(rate for found in sightings.optimizers for rate in found.learning_rates)),
        needs_code=tuple(name for name, mark in grades.items() if mark != "safe"),
        dangerous=tuple(name for name, mark in grades.items() if mark == "dangerous"),
        findings=tuple(findings),
        tensors=tuple(tensors),
        contents=tuple(sightings.rows),
    )


def _damage(damaged: Mapping[str, Sequence[str]]) -> list[Finding]:
    """One finding for each thing that is wrong with tensors' data, with the tensors that it is wrong with."""
    found = []
    for problem, paths in list(damaged.items())[:_MAX_DAMAGE_FINDINGS]:
        code = "checksum" if "checksum" in problem else "damaged"
        others = f" (and {len(paths) - 1:,} more tensors)" if len(paths) > 1 else ""
        what = f"{paths[0]}: {problem}{others}"
        found.append(fault(code, what, *paths[1:5], advice=_COPY_AGAIN, path=paths[0]))
    return found


def _stopped(why: str) -> Finding:
    advice = "The file is not like any that training writes: do not load it."
    return fault("limit", f"the reading was stopped: {why}", advice=advice)


def _fact(seen: SeenTensor, values: Values | None) -> TensorFact:
    fact = TensorFact(
        path=seen.path, dtype=seen.tensor.dtype, shape=seen.tensor.shape, role=seen.role, elements=seen.tensor.numel
    )
    if values is None:
        return fact
    return replace(fact, nonfinite=values.nonfinite, minus_infinite=values.minus_infinite, zero=values.zero)


def _dtypes(tensors: Iterable[TensorFact]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for tensor in tensors:
        if tensor.role in ("parameters", "ema", "master_copies", "optimizer_state"):
            role = "buffers" if tensor.role == "parameters" and is_buffer(tensor.path, tensor.dtype) else tensor.role
            counts.setdefault(role, Counter())[tensor.dtype] += 1
    return {role: dict(counter.most_common()) for role, counter in counts.items()}


def _present(sightings: Sightings, tensors: Sequence[TensorFact]) -> Mapping[str, tuple[str, ...]]:
    """Where each part of an exact resume is; parts that are not there have no entry."""
    weights = [tensor.path for tensor in tensors if tensor.role in ("parameters", "master_copies", "ema")]
    parts = {
        "model": tuple(weights[:1]),
        "optimizer": tuple(optimizer.path for optimizer in sightings.optimizers),
        "scheduler": tuple(sightings.schedulers),
        "scaler": tuple(
            scaler.path for scaler in sightings.scalers if not scaler.empty and scaler.kind != "not a state"
        ),
        "rng": tuple(place for places in sightings.rng.values() for place in places),
        **{f"rng.{kind}": tuple(places) for kind, places in sightings.rng.items()},
        "data": tuple(dict.fromkeys(sightings.data)),
    }
    return {part: places for part, places in parts.items() if places}


def _missing(
    present: Mapping[str, object], precision: Precision, sightings: Sightings, layout: Layout
) -> tuple[str, ...]:
    parts = ("model", "optimizer", "scheduler", "scaler", "rng", "data")
    absent = [part for part in parts if part not in present and part not in layout.had_none]
    if "scaler" in absent and not precision.fp16 and (precision.bf16 or precision.off):
        absent.remove("scaler")
    if "rng" in present and "rng.cuda" not in present and "cuda" in sightings.devices:
        absent.append("rng.cuda")
    return tuple(absent)


def _steps(layout: Layout, sightings: Sightings) -> Steps:
    counted = {found.path: found.highest_step for found in sightings.optimizers if found.highest_step is not None}
    highest = max(counted.values(), default=None)
    if highest is None and layout.loop is not None and layout.skipped is not None:
        highest = layout.loop - layout.skipped
    skipped = layout.skipped
    if skipped is None and layout.loop is not None and highest is not None:
        taken = sum(counted.values()) if layout.loop_is_sum else highest
        skipped = layout.loop - taken if layout.loop >= taken else None
    return Steps(
        loop=layout.loop,
        loop_path=layout.loop_path,
        optimizer=highest,
        optimizers=counted,
        skipped=skipped,
        epoch=layout.epoch,
    )
