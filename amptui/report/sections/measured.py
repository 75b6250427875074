"""Time and memory of an accepted policy, and its effect beside what another seed does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amptui.findings.gain import Claim, Direction, Memory, SeedSpread, Spread
from amptui.findings.words import counted
from amptui.protocol.events import Measured, SeedsMeasured
from amptui.report.document import Block, Bullets, Column, Facts, Mark, Section, Sign, Table, Words
from amptui.report.figures import figure, name, size, step_time, words
from amptui.report.recorded import Recorded
from amptui.session.side_by_side import seed_claims

_SIGNS: dict[Direction, Sign] = {"better": "ok", "worse": "warn"}


def measured_section(recorded: Recorded) -> Section | None:
    """None where neither was measured."""
    state, trial = recorded.state, recorded.trial
    measured = state.measured.get(trial.number) if trial is not None else None
    blocks: list[Block] = []
    if measured is not None:
        blocks += _measurement(measured)
    if state.seeds is not None and trial is not None:
        blocks += _seeds(state.seeds, seed_claims(state, trial))
    return Section("measured", "Time, memory, other seeds", blocks) if blocks else None


def _measurement(measured: Measured) -> list[Block]:
    equal: Words = (
        Mark("ok"),
        f"{counted(measured.cases, 'case')} with diagnostics off, equal bit for bit to the trial's",
    )
    if measured.differs is not None:
        equal = (Mark("fail"), f"with diagnostics off {words(measured.differs)} is not what the trial gave")
    what = f"one {measured.what}" if measured.what == "training step" else "all cases once"
    rows: list[tuple[str, Words]] = [
        ("Timed", f"{what}, FP32 and the policy in turn, without any diagnostics, by {measured.clock}"),
        ("Rounds", f"{measured.rounds:,} of {counted(measured.steps_per_round, 'step')}{_left_out(measured)}"),
        ("Device", name(measured.device)),
        ("Repeated", equal),
        ("FP32 arithmetic", ", ".join(f"{name(key)} {name(value)}" for key, value in measured.precision.items())),
    ]
    lines = [
        _line("FP32", measured.fp32, step_time),
        _line("Policy", measured.mixed, step_time),
        _line("FP32 over policy, paired", measured.speedup, figure),
        _line("FP32 over FP32, paired (the noise)", measured.same, figure),
    ]
    columns = (
        Column("Time a step"),
        Column("Median", number=True),
        Column("Quartiles", number=True),
        Column("Pairs", number=True),
    )
    note = "A ratio above 1 means that the policy is faster. No gain is stated that is smaller than the noise."
    blocks: list[Block] = [Bullets([_claim(claim) for claim in measured.claims]), Facts(rows)]
    blocks.append(Table("Time", columns, lines, note))
    return [*blocks, _memory(measured.memory)] if measured.memory is not None else blocks


def _left_out(measured: Measured) -> str:
    return f"; {counted(measured.left_out, 'round')} with a skipped update left out" if measured.left_out else ""


def _line(label: str, spread: Spread, say: Callable[[float], str]) -> Sequence[Words]:
    return (label, say(spread.median), f"{say(spread.low)} to {say(spread.high)}", f"{spread.count:,}")


def _memory(memory: Memory) -> Facts:
    kind = "Peak device memory" if memory.kind == "device" else "Resident memory of the process"
    said = f"FP32 {size(memory.fp32)}, once more {size(memory.fp32_again)}, policy {size(memory.mixed)}"
    return Facts([(kind, said)])


def _seeds(seeds: SeedsMeasured, claims: Sequence[Claim]) -> list[Block]:
    lines = [_spread(spread) for spread in seeds.spreads]
    columns = (Column("Figure"), Column("FP32", number=True), Column("FP32 with other seeds", number=True))
    table = Table("The FP32 stretch under other seeds", columns, lines)
    return [table, Bullets([_claim(claim) for claim in claims])] if claims else [table]


def _spread(spread: SeedSpread) -> Sequence[Words]:
    return (name(spread.what), figure(spread.baseline), ", ".join(map(figure, spread.others)))


def _claim(claim: Claim) -> Words:
    sign = _SIGNS.get(claim.direction)
    return (Mark(sign), words(claim.words)) if sign is not None else words(claim.words)
