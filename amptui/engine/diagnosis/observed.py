"""One forward that can be repeated in different arithmetic: a case, or the window of an update."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from amptui.engine import rng
from amptui.engine.bench import Bench
from amptui.engine.diagnosis.replaying import forward_window, trace_case, traced_window
from amptui.engine.evaluate import Evaluated, call_outputs, eval_mode
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveProject, LiveUpdate
from amptui.engine.nested import copied
from amptui.engine.precision import policy_autocast
from amptui.engine.same_draws import SameDraws
from amptui.engine.tracing.ladder import Trace
from amptui.project import Policy


@dataclass(frozen=True, eq=False)
class Observed:
    """What is repeated, and how its findings are labelled."""

    live: LiveProject
    policy: Policy
    #: One forward from the same state, in whatever arithmetic is on.
    forward: Callable[[], Any]
    #: The same under op-level tracing; the argument says whether in true FP32.
    traced: Callable[[bool], AbstractContextManager[Trace]]
    #: The user function that code outside of all modules belongs to.
    outside: str
    step: int
    #: The training flags that modules have there.
    mode: Callable[[], AbstractContextManager[object]]
    case: str | None = None
    update: str | None = None

    @contextlib.contextmanager
    def arithmetic(self) -> Iterator[None]:
        """A fresh autocast as the policy says, with the random numbers that FP32 draws."""
        with policy_autocast(self.live.device.type, self.policy.dtype, self.policy.autocast), SameDraws():
            yield


def observed_case(bench: Bench, policy: Policy, evaluated: Evaluated) -> Observed:
    """A case in eval mode."""

    def forward() -> Any:
        rng.restore(bench.rng)
        with eval_mode(bench.live.modules), torch.no_grad():
            return call_outputs(bench.live, copied(evaluated.case.inputs, None))

    def traced(fp32: bool) -> AbstractContextManager[Trace]:
        trace = trace_case(bench.live, evaluated.case, policy, bench.rng, fp32=fp32, failing=False)
        return contextlib.nullcontext(trace)

    def mode() -> AbstractContextManager[object]:
        return eval_mode(bench.live.modules)

    return Observed(bench.live, policy, forward, traced, "outputs", evaluated.index, mode, case=evaluated.case.id)


def observed_window(run: GuardedRun, update: LiveUpdate, step: int) -> Observed:
    """The window of an update whose step has not been taken yet."""

    def forward() -> Any:
        return forward_window(run, update, step)

    def traced(fp32: bool) -> AbstractContextManager[Trace]:
        return traced_window(run, update, step, fp32=fp32, failing=False)

    return Observed(run.live, run.policy, forward, traced, "loss", step, contextlib.nullcontext, update=update.name)
