"""FP32 against an accepted policy: rounds of FP32, FP32 again and mixed in random order, compared in pairs.

Every block begins from the checkpoint's state with the same random numbers and the same batches, which lie ready before
the clock starts. FP32 twice shows the noise: no gain that is smaller is stated.
"""

from __future__ import annotations

import contextlib
import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from amptui.engine.bench import Bench
from amptui.engine.evaluate import Evaluated, eval_mode, evaluate
from amptui.engine.measuring.clock import PeakMemory, clock_name, seconds_of
from amptui.engine.measuring.plain_step import PlainLoop, in_user_code
from amptui.engine.nested import copied
from amptui.engine.own_autocast import neutral_autocast
from amptui.engine.plain_values import same_bits
from amptui.engine.precision import policy_autocast
from amptui.engine.regions import fp32_regions
from amptui.findings.gain import Claim, Memory, memory_claim, spread, time_claim
from amptui.findings.judgement import ScaleCourse
from amptui.project import Policy, Scaler
from amptui.protocol.events import Measured

Arm = Literal["fp32", "fp32 again", "mixed"]
ARMS: tuple[Arm, ...] = ("fp32", "fp32 again", "mixed")
#: Rounds at least and at most; between them the time decides.
FEWEST_ROUNDS, MOST_ROUNDS = 5, 40
#: A block lasts so long at least, so that the clock's own steps do not matter.
SHORTEST_BLOCK_S = 0.02
MOST_STEPS = 50
WARM_UP_BLOCKS = 2


@dataclass(eq=False)
class _Rounds:
    """Seconds per step by arm, one entry a round; rounds with a skipped update are left out."""

    seconds: dict[Arm, list[float]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    left_out: int = 0

    def add(self, round_: dict[Arm, float | None]) -> None:
        if None in round_.values():
            self.left_out += 1
            return
        for arm, seconds in round_.items():
            assert seconds is not None
            self.seconds[arm].append(seconds)

    def ratios(self, above: Arm, below: Arm) -> list[float]:
        return [a / b for a, b in zip(self.seconds[above], self.seconds[below], strict=True) if b > 0.0]


class Measurement:
    """Measures one accepted trial; `accepted` are its cases as they were judged."""

    def __init__(
        self, bench: Bench, policy: Policy, course: ScaleCourse | None, accepted: Sequence[Evaluated], *, trial: int
    ) -> None:
        self._bench, self._policy, self._accepted, self._trial = bench, policy, accepted, trial
        self._settings = _settled(policy, course)
        live = bench.live
        self._training = bool(live.updates)
        self._windows = [list(live.batches.window(step)) for step in range(min(live.batches.iterations, MOST_STEPS))]
        self._inputs = [copied(case.inputs, live.device) for case in live.cases]
        #: By arm, in one order for every machine: what is compared is the same work.
        self._order = random.Random(0)  # noqa: S311 - an order of runs, not a secret

    def run(self, *, seconds: float) -> Measured:
        """Raises `UserCodeError` where the project fails, `Stopped` where the user ends the stage."""
        bench = self._bench
        began = time.monotonic()
        try:
            steps = self._warm_up()
            rounds, memory = _Rounds(), self._memory(steps)
            for number in range(MOST_ROUNDS):
                rounds.add(self._round(steps))
                bench.progress("measure", "rounds", number + 1, MOST_ROUNDS)
                bench.between()
                if number + 1 >= FEWEST_ROUNDS and time.monotonic() - began > seconds:
                    break
            differs = self._repeat_cases()
        finally:
            bench.start.restore()
        return self._measured(rounds, steps, memory, differs)

    def _measured(self, rounds: _Rounds, steps: int, memory: Memory | None, differs: str | None) -> Measured:
        bench = self._bench
        speedup = spread(rounds.ratios("fp32", "mixed"))
        same = spread(rounds.ratios("fp32", "fp32 again"))
        claims: tuple[Claim, ...] = ()
        if differs is None:
            claims = (time_claim(speedup, same), memory_claim(memory))
        return Measured(
            trial=self._trial,
            policy=self._policy,
            what="training step" if self._training else "inference",
            device=str(bench.live.device),
            precision=bench.precision.as_text(),
            clock=clock_name(bench.live.device),
            rounds=speedup.count,
            steps_per_round=steps,
            fp32=spread(rounds.seconds["fp32"]),
            mixed=spread(rounds.seconds["mixed"]),
            speedup=speedup,
            same=same,
            left_out=rounds.left_out,
            memory=memory,
            cases=len(self._accepted),
            differs=differs,
            claims=claims,
        )

    # Blocks.

    def _warm_up(self) -> int:
        """Runs each arm until nothing is done for the first time; returns how many steps make a block."""
        longest = 0.0
        for _ in range(WARM_UP_BLOCKS):
            for arm in ARMS:
                longest = max(longest, self._block(arm, 1)[0])
                self._bench.between()
        shortest = min(self._block(arm, 1)[0] for arm in ARMS)
        whole = len(self._windows) if self._training else MOST_STEPS
        return max(1, min(whole, MOST_STEPS, round(SHORTEST_BLOCK_S / max(shortest, 1e-6))))

    def _round(self, steps: int) -> dict[Arm, float | None]:
        """Every arm once, in random order; None for one in which an update was skipped."""
        found: dict[Arm, float | None] = {}
        for arm in self._order.sample(ARMS, len(ARMS)):
            seconds, skipped = self._block(arm, steps)
            found[arm] = None if skipped else seconds / steps
        return found

    def _block(self, arm: Arm, steps: int) -> tuple[float, bool]:
        """Seconds of `steps` steps from the checkpoint's state, and whether the scaler skipped one."""
        with self._arranged(arm) as loop:
            work = self._work(loop, steps)
            with _no_collection():
                seconds = seconds_of(lambda: in_user_code(work), self._bench.live.device)
            skipped = loop.settings is not None and self._training and _backed_off(loop)
        return seconds, skipped

    @contextlib.contextmanager
    def _arranged(self, arm: Arm) -> Iterator[PlainLoop]:
        """The checkpoint's state, the project's own arithmetic switches, and the arm's loop."""
        bench, mixed = self._bench, arm == "mixed"
        bench.start.restore()
        bench.precision.restore()
        regions = self._policy.fp32_regions if mixed else ()
        with contextlib.ExitStack() as contexts:
            contexts.enter_context(fp32_regions(bench.live.modules, regions, device=bench.live.device.type))
            if not mixed:  # an autocast of the project's own would make FP32 something else
                contexts.enter_context(neutral_autocast())
            if not self._training:
                contexts.enter_context(eval_mode(bench.live.modules))
            yield PlainLoop(bench.live, self._policy, mixed, self._settings if mixed else None)

    def _work(self, loop: PlainLoop, steps: int) -> Callable[[], None]:
        if not self._training:
            inputs: Sequence[Any] = [copied(value, self._bench.live.device) for value in self._inputs]

            def infer() -> None:
                for _ in range(steps):
                    loop.evaluate(inputs)

            return infer
        # a project may edit its batches in place
        windows = [copied(self._windows[step], self._bench.live.device) for step in range(steps)]

        def train() -> None:
            for step, window in enumerate(windows):
                loop.step(step, window)

        return train

    def _memory(self, steps: int) -> Memory | None:
        """Peak memory of each arm in a block of its own."""
        peak = PeakMemory(self._bench.live.device)
        found: dict[Arm, int] = {}
        for arm in ARMS:
            with self._arranged(arm) as loop:
                work = self._work(loop, steps)
                gc.collect()
                if not peak.begin():
                    return None
                seconds_of(lambda: in_user_code(work), self._bench.live.device)  # noqa: B023 - called at once
                found[arm] = peak.end()
        return Memory(kind=peak.kind, fp32=found["fp32"], fp32_again=found["fp32 again"], mixed=found["mixed"])

    # The cases once more.

    def _repeat_cases(self) -> str | None:
        """Runs the accepted cases again with diagnostics off; the first output that is not equal bit for bit."""
        bench, policy = self._bench, self._policy
        bench.start.restore()
        bench.precision.restore()
        device = bench.live.device.type
        with fp32_regions(bench.live.modules, policy.fp32_regions, device=device):
            again = evaluate(
                bench.live, lambda: policy_autocast(device, policy.dtype, policy.autocast), state=bench.rng
            )
        for before, now in zip(self._accepted, again, strict=True):
            for name in {**before.outputs, **now.outputs}:
                one, other = before.outputs.get(name), now.outputs.get(name)
                if one is None or other is None or not same_bits(one, other):
                    return f"output {name} of case {now.case.id}"
            if before.decision != now.decision:
                return f"the decision of case {now.case.id}"
        return None


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps the garbage collector from running in the middle of one arm, whose time it would be counted as."""
    enabled = gc.isenabled()
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _settled(policy: Policy, course: ScaleCourse | None) -> Scaler | None:
    """The policy's scaler, begun at the scale that the trial came down to: skips are no training."""
    settings = policy.effective_scaler
    if settings is None or course is None:
        return settings
    return Scaler(
        init_scale=course.lowest,
        growth_factor=settings.growth_factor,
        backoff_factor=settings.backoff_factor,
        growth_interval=max(settings.growth_interval, 2 * MOST_STEPS),
    )


def _backed_off(loop: PlainLoop) -> bool:
    assert loop.scaler is not None
    assert loop.settings is not None
    return loop.scaler.get_scale() < loop.settings.init_scale
