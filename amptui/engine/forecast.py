"""Before the trial: what FP32 alone foretells of FP16 and BF16.

The FP32 stretch and the cases are run once more with every op watched. What each op will be computed in is not
guessed: one window under the policy shows it (dtypes only; its values are not looked at). The values are FP32's, so
that one overflow hides no other, and a gradient at loss scale 1 tells for every scale.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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
#: Seconds that reading the windows, and reading the cases, may take; so many of each are read whatever it takes. A
#: window of a thousand operators is read in seconds, where it ran in a tenth of one.
BUDGET_S = 20.0
LEAST = 4
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
    windows = cases = 0
    failed: str | None = None
    dtypes: tuple[DtypeForecast, ...] = ()
    try:
        readers = [_Dtype(bench, dtype, tape) for dtype in dict.fromkeys(DTYPE_NAMES.values())]
        cases = _read_cases(bench, [dtype.reader for dtype in readers])
        windows = _read_stretch(bench, [dtype.reader for dtype in readers], tape, iterations)
        bench.start.restore()
        dtypes = tuple(dtype.forecast() for dtype in readers)
    except UserCodeError as error:
        failed = f"{error.exception}: {error.message}"
    except (RuntimeError, NotImplementedError, TypeError) as error:  # code that no dispatch mode can watch
        failed = f"{type(error).__name__}: {error}"
    finally:
        bench.start.restore()
    return ForecastMade(
        windows=windows,
        iterations=iterations,
        cases=cases,
        dtypes=dtypes,
        seconds=time.perf_counter() - started,
        failed=failed,
    )


def _spread_out(count: int, most: int) -> frozenset[int]:
    if count <= most:
        return frozenset(range(count))
    return frozenset(round(i * (count - 1) / (most - 1)) for i in range(most))


class _Chosen:
    """Which of `count` windows or cases are read: as many as there is time for, judged by how long the first took."""

    def __init__(self, count: int, most: int) -> None:
        self._count, self._most = count, most
        self.places = _spread_out(count, most)
        self.read = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.read += 1
        if self.read == 1:
            affordable = int(BUDGET_S / max(time.perf_counter() - began, 1e-6))
            self.places = _spread_out(self._count, min(self._most, max(LEAST, affordable)))


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


def _read_cases(bench: Bench, readers: Sequence[Reader]) -> int:
    """Returns how many were read."""
    live = bench.live
    chosen = _Chosen(len(live.cases), len(live.cases))
    with true_fp32(), eval_mode(live.modules), torch.no_grad():
        for index, case in enumerate(live.cases):
            if index not in chosen.places:
                continue
            for reader in readers:
                reader.begin(Moment(index=index, case=case.id))
            inputs = copied(case.inputs, live.device)
            rng.restore(bench.rng)
            watched = watched_ops(
                live.modules, device=live.device.type, outside="outputs", seen=lambda op: _note(readers, op)
            )
            with chosen.reading(), watched, user_code("outputs", case=case.id):
                call_outputs(live, inputs)
            bench.progress("baseline", "forecast, cases", index + 1, len(live.cases))
            bench.between()
    bench.start.restore()
    return chosen.read


def _read_stretch(bench: Bench, readers: Sequence[Reader], tape: RngTape, iterations: int) -> int:
    """The FP32 stretch with its updates; returns how many windows were read, forward and backward."""
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

    chosen = _Chosen(iterations, WINDOWS)
    with true_fp32():
        for step in range(iterations):  # the last window is always one of those that are read
            if step in chosen.places:
                with chosen.reading(), watched_ops(live.modules, device=live.device.type, outside="loss", seen=seen):
                    run_iteration(run, step, on_phase)
            else:
                run_iteration(run, step, on_phase)
            bench.progress("baseline", "forecast, stretch", step + 1, iterations)
    return chosen.read


def _note(readers: Sequence[Reader], op: WatchedOp) -> None:
    """Each tensor's values are read once for all dtypes."""
    read: dict[int, Values] = {}

    def values(tensor: Tensor) -> Values:
        return read.setdefault(id(tensor), Values(tensor))

    for reader in readers:
        reader.note(op, values)
