"""Before the trial: what FP32 alone foretells of FP16 and BF16.

The FP32 stretch and the cases are run once more with every op watched. What each op will be computed in is not
guessed: one window under the policy shows it (dtypes only; its values are not looked at). The values are FP32's, so
that one overflow hides no other, and a gradient at loss scale 1 tells for every scale.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from amptui.engine import rng
from amptui.engine.bench import Bench
from amptui.engine.course import run_iteration
from amptui.engine.evaluate import call_outputs, eval_mode
from amptui.engine.failures import UserCodeError, user_code
from amptui.engine.forecast_reader import Moment, Reader, Values
from amptui.engine.iteration import GuardedRun, Phase
from amptui.engine.nested import copied
from amptui.engine.precision import true_fp32
from amptui.engine.precision_map import OpDtypes, watch_case, watch_training
from amptui.engine.tape import RngTape
from amptui.engine.watched_ops import WatchedOp, watched_ops
from amptui.findings import foreseen
from amptui.findings.foreseen import DtypeForecast
from amptui.project import DTYPE_NAMES, Policy
from amptui.protocol.events import ForecastMade
from amptui.spec.run_settings import policy_over

#: So many windows are read at most, evenly spread over a longer stretch.
WINDOWS = 64
#: So many places are told, the smallest headroom first; every overflow is.
PLACES = 200
#: So many windows or cases are run under the policy for ops that the first one did not show.
SETTLED = 4
SCALES = tuple(2.0**exponent for exponent in range(0, 25, 4))


def forecast(bench: Bench, tape: RngTape) -> ForecastMade:
    """Runs the FP32 stretch and the cases under observation; the checkpoint's state is restored afterwards.

    `tape` is the baseline's: the same random draws. Raises `Stopped` where the user ends the stage.
    """
    started = time.perf_counter()
    live = bench.live
    iterations = live.batches.iterations if live.updates else 0
    steps = _spread_out(iterations, WINDOWS)
    failed: str | None = None
    dtypes: tuple[DtypeForecast, ...] = ()
    try:
        dtypes = _forecast(bench, tape, steps)
    except UserCodeError as error:
        failed = f"{error.exception}: {error.message}"
    except (RuntimeError, NotImplementedError, TypeError) as error:  # code that no dispatch mode can watch
        failed = f"{type(error).__name__}: {error}"
    finally:
        bench.start.restore()
    return ForecastMade(
        windows=len(steps),
        iterations=iterations,
        cases=len(live.cases),
        dtypes=dtypes,
        seconds=time.perf_counter() - started,
        failed=failed,
    )


def _spread_out(count: int, most: int) -> frozenset[int]:
    if count <= most:
        return frozenset(range(count))
    return frozenset(round(i * (count - 1) / (most - 1)) for i in range(most))


def _forecast(bench: Bench, tape: RngTape, steps: frozenset[int]) -> tuple[DtypeForecast, ...]:
    dtypes = [_Dtype(bench, dtype, tape) for dtype in dict.fromkeys(DTYPE_NAMES.values())]
    readers = [dtype.reader for dtype in dtypes]
    _read_cases(bench, readers)
    _read_stretch(bench, readers, tape, steps)
    bench.start.restore()
    return tuple(dtype.forecast() for dtype in dtypes)


class _Dtype:
    """One dtype: what a run in it shows, and what FP32's values will be there."""

    def __init__(self, bench: Bench, dtype: str, tape: RngTape) -> None:
        self._bench, self._tape = bench, tape
        self._policy: Policy = policy_over(bench.policy, {"dtype": dtype})
        self._training = watch_training(bench, self._policy, tape) if bench.live.updates else OpDtypes()
        self._cases = watch_case(bench, self._policy) if bench.live.cases else OpDtypes()
        self.reader = Reader(dtype, self._training, self._cases)

    def forecast(self) -> DtypeForecast:
        dtype, reader = self._policy.dtype, self.reader
        reader.settle([self._shown_at(moment) for moment in reader.unknown(SETTLED)])
        read = reader.gradients(half_loss=dtype in self._training.losses.values())
        failed = self._training if self._training.failed else self._cases
        gradients = read.gradients
        first = foreseen.initial_scale(gradients, dtype) if gradients is not None else None
        return DtypeForecast(
            dtype=dtype,
            failed=failed.failed,
            failed_at=failed.failed_at,
            overflows=reader.overflows(),
            places=reader.places(PLACES),
            initial_scale=first,
            limited_by=read.limited_by,
            overflowing=read.overflowing,
            beyond_every_scale=read.beyond,
            scales=foreseen.scale_table(gradients, dtype, sorted({*SCALES, first})) if gradients and first else (),
        )

    def _shown_at(self, moment: Moment) -> OpDtypes:
        if moment.index is not None:
            return watch_case(self._bench, self._policy, moment.index)
        return watch_training(self._bench, self._policy, self._tape, moment.step or 0)


def _read_cases(bench: Bench, readers: Sequence[Reader]) -> None:
    live = bench.live
    with true_fp32(), eval_mode(live.modules), torch.no_grad():
        for index, case in enumerate(live.cases):
            for reader in readers:
                reader.begin(Moment(index=index, case=case.id))
            inputs = copied(case.inputs, live.device)
            rng.restore(bench.rng)
            watched = watched_ops(
                live.modules, device=live.device.type, outside="outputs", seen=lambda op: _note(readers, op)
            )
            with watched, user_code("outputs", case=case.id):
                call_outputs(live, inputs)
            bench.progress("baseline", "forecast, cases", index + 1, len(live.cases))
            bench.between()
    bench.start.restore()


def _read_stretch(bench: Bench, readers: Sequence[Reader], tape: RngTape, steps: frozenset[int]) -> None:
    """The FP32 stretch with its updates; forward and backward of the windows in `steps` are read."""
    live = bench.live
    run = GuardedRun(live, bench.policy, mixed=False, tape=tape)
    reading = False

    def seen(op: WatchedOp) -> None:
        if reading:
            _note(readers, op)

    def on_phase(phase: Phase) -> None:
        nonlocal reading
        if phase.name in ("zero_grad", "backward"):  # what follows is the forward of a micro-batch
            reading = True
            for reader in readers:
                reader.begin(Moment(step=phase.step))
        elif phase.name == "unscale":
            reading = False
        bench.between()

    last = max(steps, default=-1)
    with true_fp32():
        for step in range(last + 1):
            watched = watched_ops(live.modules, device=live.device.type, outside="loss", seen=seen)
            with watched if step in steps else nullcontext():
                run_iteration(run, step, on_phase)
            bench.progress("baseline", "forecast, stretch", step + 1, last + 1)


def _note(readers: Sequence[Reader], op: WatchedOp) -> None:
    """Each tensor's values are read once for all dtypes."""
    read: dict[int, Values] = {}

    def values(tensor: Tensor) -> Values:
        return read.setdefault(id(tensor), Values(tensor))

    for reader in readers:
        reader.note(op, values)
