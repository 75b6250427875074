"""Which op ran in which dtype under a policy, and how many casts that took: did autocast do anything here?

One window (or one case) is run under the policy with every op watched. Only dtypes and sizes are read, so it does not
matter whether the values are in range.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from amptui.engine import rng
from amptui.engine.bench import Bench
from amptui.engine.evaluate import call_outputs, eval_mode
from amptui.engine.failures import UserCodeError, user_code
from amptui.engine.live import LiveUpdate, split_loss
from amptui.engine.nested import copied
from amptui.engine.precision import policy_autocast
from amptui.engine.regions import fp32_regions
from amptui.engine.replay import untouched
from amptui.engine.tape import RngTape
from amptui.engine.tracing.values import dtype_name
from amptui.engine.watched_ops import OpKey, WatchedOp, watched_ops
from amptui.project import Policy
from amptui.protocol.measuring import ModulePrecision, PrecisionMapped

#: Calls by which the project itself asks for another dtype.
_OWN_CASTS = frozenset({"to", "type", "type_as", "float", "half", "bfloat16", "double"})
_HALF = ("float16", "bfloat16")
#: How often a cast is repeated to be timed.
_REPEATS = 20


@dataclass
class _Module:
    ops: Counter[str] = field(default_factory=Counter)
    casts: int = 0
    cast_bytes: int = 0
    own_casts: int = 0


@dataclass(eq=False)
class OpDtypes:
    """What the watched run showed: by op the dtypes of its results, in the order in which it ran."""

    dtypes: dict[OpKey, list[str]] = field(default_factory=dict)
    modules: dict[str, _Module] = field(default_factory=dict)
    #: Casts by (from, to, elements).
    casts: Counter[tuple[torch.dtype, torch.dtype, int]] = field(default_factory=Counter)
    #: By update, the dtype of its loss.
    losses: dict[str, str] = field(default_factory=dict)
    #: What ended the run early, and where.
    failed: str | None = None
    failed_at: str | None = None

    def dtype_of(self, key: OpKey, ordinal: int) -> str | None:
        """The dtype of the op's `ordinal`-th result under this key; None where it is not known for certain."""
        seen = self.dtypes.get(key)
        if seen is None:
            return None
        if ordinal < len(seen):
            return seen[ordinal]
        return seen[0] if len(set(seen)) == 1 else None

    def note(self, op: WatchedOp) -> None:
        results = op.floats
        if not results:
            return
        module = self.modules.setdefault(op.place.module, _Module())
        dtype = dtype_name(results[0].dtype)
        if op.facts.aten == "_to_copy":
            self._note_cast(module, op)
            return
        self.dtypes.setdefault(op.key, []).append(dtype)
        module.ops[dtype] += 1

    def _note_cast(self, module: _Module, op: WatchedOp) -> None:
        result, source = op.results[0], op.args[0]
        if source.dtype == result.dtype or not source.is_floating_point():
            return
        if op.place.phase != "backward" and op.place.api in _OWN_CASTS:
            module.own_casts += 1
            return
        module.casts += 1
        module.cast_bytes += result.nbytes
        self.casts[source.dtype, result.dtype, result.numel()] += 1


def watch_training(bench: Bench, policy: Policy, tape: RngTape, step: int = 0) -> OpDtypes:
    """Forward and backward of every update's first micro-batch of iteration `step` under `policy`.

    It runs on the weights as they are; buffers, gradients and random numbers are as before afterwards.

    Code that fails in this dtype ends it: `failed` says how, and what ran before it is known.
    """
    live, found = bench.live, OpDtypes()
    with _watched(bench, policy, found, "loss"):
        for update in live.updates:
            if update.takes_part(step):
                found.losses[update.name] = _run_window(bench, policy, update, tape, step)
    return found


def _run_window(bench: Bench, policy: Policy, update: LiveUpdate, tape: RngTape, step: int) -> str:
    live = bench.live
    batch = next(iter(live.batches.window(step)))
    tape.enter(step, update.name, 0)
    with user_code("forward", step=step, update=update.name), _autocast(bench, policy):
        driving = split_loss(update.update.loss(live.model, batch)).driving
    with user_code("backward", step=step, update=update.name):
        (driving * torch.ones((), device=driving.device)).backward()  # type: ignore[no-untyped-call]
    return dtype_name(driving.dtype)


def watch_case(bench: Bench, policy: Policy, index: int = 0) -> OpDtypes:
    """One case under `policy`, on the weights as they are."""
    live, found = bench.live, OpDtypes()
    case = live.cases[index]
    inputs = copied(case.inputs, live.device)
    with _watched(bench, policy, found, "outputs"), eval_mode(live.modules), torch.no_grad():
        rng.restore(bench.rng)
        with user_code("outputs", case=case.id), _autocast(bench, policy):
            call_outputs(live, inputs)
    return found


def _autocast(bench: Bench, policy: Policy) -> contextlib.AbstractContextManager[object]:
    return policy_autocast(bench.live.device.type, policy.dtype, policy.autocast)


@contextlib.contextmanager
def _watched(bench: Bench, policy: Policy, found: OpDtypes, outside: str) -> Iterator[None]:
    device = bench.live.device.type
    state = rng.capture()
    bench.precision.restore()
    try:
        with (
            untouched(bench.live),
            fp32_regions(bench.live.modules, policy.fp32_regions, device=device),
            watched_ops(bench.live.modules, device=device, outside=outside, seen=found.note),
        ):
            yield
    except UserCodeError as error:
        found.failed, found.failed_at = f"{error.exception}: {error.message}", error.where
    finally:
        rng.restore(state)


def precision_map(bench: Bench, policy: Policy, tape: RngTape, *, trial: int) -> PrecisionMapped:
    """The map of one window under `policy`, or of the first case where nothing is trained."""
    found = watch_training(bench, policy, tape) if bench.live.updates else watch_case(bench, policy)
    ops: Counter[str] = Counter()
    for module in found.modules.values():
        ops.update(module.ops)
    return PrecisionMapped(
        trial=trial,
        dtype=policy.dtype,
        modules=tuple(_module(path, module) for path, module in found.modules.items()),
        ops=dict(ops),
        casts=sum(module.casts for module in found.modules.values()),
        cast_bytes=sum(module.cast_bytes for module in found.modules.values()),
        own_casts=sum(module.own_casts for module in found.modules.values()),
        cast_seconds=cast_seconds(found.casts, bench.live.device),
        words=_words(policy, ops),
        failed=found.failed,
    )


def _module(path: str, module: _Module) -> ModulePrecision:
    return ModulePrecision(
        path=path,
        ops=dict(module.ops),
        casts=module.casts,
        cast_bytes=module.cast_bytes,
        own_casts=module.own_casts,
    )


def _words(policy: Policy, ops: Mapping[str, int]) -> str:
    half, total = sum(ops.get(dtype, 0) for dtype in _HALF), sum(ops.values())
    if not total:
        return "no floating-point op ran"
    if not half:
        why = "autocast is off" if not policy.autocast else "nothing here is an op that autocast runs in half"
        return f"all {total:,} ops ran in float32: {why}"
    return f"{half:,} of {total:,} ops ran in half ({half / total:.0%})"


def cast_seconds(casts: Mapping[tuple[torch.dtype, torch.dtype, int], int], device: torch.device) -> float | None:
    """How long these casts take by themselves: each repeated on tensors of its size. CUDA only."""
    if device.type != "cuda":
        return None
    total = 0.0
    for (source, target, elements), count in casts.items():
        tensor: Any = torch.empty(elements, dtype=source, device=device)
        tensor.to(target)
        start: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(_REPEATS):
            tensor.to(target)
        end.record()
        end.synchronize()
        total += start.elapsed_time(end) / 1000.0 / _REPEATS * count
    return total
