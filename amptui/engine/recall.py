"""A retained case run once more: its own weights, buffers, batches and RNG, under the policy it failed under."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from amptui.engine import rng
from amptui.engine.batches import FrozenBatches
from amptui.engine.diagnosis.mending import with_regions
from amptui.engine.diagnosis.replaying import Window, origins_of_window, traced_window
from amptui.engine.diagnosis.setting import Setting
from amptui.engine.diagnosis.translating import finding_of_error, findings_of_origins
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveProject, LiveUpdate, named_parameters
from amptui.engine.nested import copied, tensors_in
from amptui.engine.plain_values import from_plain
from amptui.engine.refusals import Refusal
from amptui.engine.replay import fitting_scale, replay
from amptui.engine.scale import ScaleMirror
from amptui.engine.snapshot import Snapshot
from amptui.engine.tape import RngTape
from amptui.findings.finding import Finding
from amptui.findings.words import scale_text
from amptui.project import Policy, Scaler
from amptui.protocol.recalling import CaseReplayed, Recalled


@dataclass(frozen=True)
class Retained:
    """What a retained file holds, read with `weights_only=True`."""

    id: str
    step: int
    update: str
    scale: float
    policy: Policy
    parameters: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]
    batches: Sequence[Any]
    states: Mapping[int, rng.RngState]

    @classmethod
    def read(cls, path: Path) -> Retained:
        content = torch.load(path, weights_only=True, map_location="cpu")
        said = json.loads(content["policy"])
        scaler = said.pop("scaler")
        policy = Policy(**said, scaler=Scaler(**scaler) if isinstance(scaler, dict) else scaler)
        return cls(
            id=path.stem,
            step=int(content["step"]),
            update=str(content["update"]),
            scale=float(content["scale"]),
            policy=policy,
            parameters=content["parameters"],
            buffers=content["buffers"],
            batches=[from_plain(batch) for batch in content["batches"]],
            states={int(micro): rng.RngState.from_plain(state) for micro, state in content["rng"].items()},
        )


def recall(live: LiveProject, start: Snapshot, path: Path, before: Sequence[Finding]) -> CaseReplayed:
    """Replays the case in `path`, traced; the live state is that of `start` before and after.

    `before` are the findings of the session so far: where the case failed when it was retained. Raises `Refusal` where
    the model or the updates are no longer those of the case.
    """
    case = Retained.read(path)
    update = next((u for u in live.updates if u.name == case.update), None)
    if update is None:
        raise Refusal(
            "retained", f"the project has no update {case.update!r} any more", hint="replay with its old source"
        )
    try:
        with _in_place(live, case), with_regions(live, case.policy.fp32_regions):
            return _replayed(live, update, case, before)
    finally:
        start.restore()


def _replayed(live: LiveProject, update: LiveUpdate, case: Retained, before: Sequence[Finding]) -> CaseReplayed:
    run = _run_of(live, update, case)
    fp32 = replay(run, update, case.step, fp32=True)
    with traced_window(run, update, case.step, fp32=True, failing=False) as healthy:
        meant = healthy.sites() if fp32.finite and healthy.error is None else frozenset()
    with traced_window(run, update, case.step, scale=case.scale) as traced:
        window = traced.value
        finite = traced.error is None and isinstance(window, Window) and window.finite
        origins = () if finite else origins_of_window(traced, meant)
    findings = findings_of_origins(
        origins,
        Setting(dtype=case.policy.dtype, fp32_ok=fp32.finite),
        step=case.step,
        update=update.name,
        replayed="the retained case, replayed",
    )
    findings = tuple(_advised(finding, before) for finding in findings)
    if traced.error_place is not None:
        findings = (finding_of_error(traced.error_place, step=case.step, case=None, update=update.name, where=None),)
    outcome: Recalled = "fixed" if finite else ("same" if _same_place(findings, before) else "other_place")
    return CaseReplayed(
        id=case.id,
        step=case.step,
        update=update.name,
        outcome=outcome,
        replayed=f"traced at {traced.level} level" + "".join(f"; {note}" for note in traced.notes),
        findings=findings,
        variations=_variations(run, update, case, fp32_finite=fp32.finite, finite=finite),
    )


def _advised(finding: Finding, before: Sequence[Finding]) -> Finding:
    """With the advice that the session gave about the same place: there replays had proved which regions mend it."""
    same = (
        f
        for f in before
        if (f.kind, f.module, f.op, f.step) == (finding.kind, finding.module, finding.op, finding.step)
    )
    known = next(same, None)
    if known is None:
        return finding
    regions = {name: fact for name, fact in known.facts.items() if name == "fp32_regions"}
    return dataclasses.replace(finding, advice=known.advice, facts={**finding.facts, **regions})


def _variations(
    run: GuardedRun, update: LiveUpdate, case: Retained, *, fp32_finite: bool, finite: bool
) -> tuple[tuple[str, str], ...]:
    """The table of replays: what was varied, and what happened."""
    rows = [
        (f"as it ran: {case.policy.dtype}, scale {scale_text(case.scale)}", _said(finite)),
        ("true FP32, no scaling", _said(fp32_finite)),
    ]
    if run.scaler is not None:
        rows.append(
            (f"{case.policy.dtype} without scaling (scale 1)", _said(replay(run, update, case.step, scale=1.0).finite))
        )
        fits = fitting_scale(run, update, case.step)
        if fits is not None:
            rows.append(
                (f"{case.policy.dtype} at scale {scale_text(fits)}", "finite: the largest power of two that fits")
            )
    return tuple(rows)


def _said(finite: bool) -> str:
    return "finite" if finite else "not finite"


def _same_place(findings: Sequence[Finding], before: Sequence[Finding]) -> bool:
    """Whether the case fails where a finding of its step already said it did."""
    places = {(f.module, f.op) for f in findings}
    return any((f.module, f.op) in places for f in before if f.step == (findings[0].step if findings else None))


def _run_of(live: LiveProject, update: LiveUpdate, case: Retained) -> GuardedRun:
    """A run whose window `case.step` is the retained one."""
    repeated = FrozenBatches(
        batches=list(_batches_of(live, case)), accumulate=len(case.batches), remainder=0, digest="", device=live.device
    )
    states = {(case.step, update.name, micro): state for micro, state in case.states.items()}
    stand_in = dataclasses.replace(live, batches=repeated)
    run = GuardedRun(stand_in, case.policy, mixed=True, tape=RngTape(states))
    settings = case.policy.effective_scaler
    if settings is not None:
        run.mirror = ScaleMirror(case.scale, 0, settings)
    return run


def _batches_of(live: LiveProject, case: Retained) -> Iterator[Any]:
    """The retained batches; of objects that a file cannot keep, the project's own with the retained tensors in them."""
    known = case.step < live.batches.iterations
    own = list(live.batches.window(case.step)) if known and len(case.batches) == live.accumulate else []
    for number, kept in enumerate(case.batches):
        tensors_alone = isinstance(kept, dict) and set(kept) == {"tensors"}
        if not tensors_alone or (number < len(own) and isinstance(own[number], dict)):
            yield kept
        else:
            yield _filled(copied(own[number], None) if number < len(own) else None, kept["tensors"])


def _filled(batch: Any, kept: Sequence[Tensor]) -> Any:
    held = list(tensors_in(batch))
    if [tensor.shape for tensor in held] != [tensor.shape for tensor in kept]:
        raise Refusal(
            "retained",
            "the case's batch is an object of the project's own, and the project no longer has one like it",
            hint="replay it with the batches that it was retained with",
        )
    for tensor, was in zip(held, kept, strict=True):
        tensor.copy_(was)
    return batch


@contextmanager
def _in_place(live: LiveProject, case: Retained) -> Iterator[None]:
    """The case's weights and buffers in the live tensors."""
    targets: dict[str, Tensor] = {**named_parameters(live.modules), **live.buffers()}
    for name, tensor in {**case.parameters, **case.buffers}.items():
        target = targets.get(name)
        if target is None or target.shape != tensor.shape or target.dtype != tensor.dtype:
            raise Refusal(
                "retained",
                f"{name} of the retained case does not fit the model as it is now",
                hint="replay it with the source that it was retained with",
            )
    with torch.no_grad():
        for name, tensor in {**case.parameters, **case.buffers}.items():
            targets[name].copy_(tensor)
    yield
