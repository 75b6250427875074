"""The account of what goes beyond the verdict: forecast, precision, measurement, other seeds, policies side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable

from amptui.findings.foreseen import DtypeForecast, PlaceForecast, place_words
from amptui.findings.gain import Claim, Spread
from amptui.findings.policies import TrialSummary
from amptui.findings.words import counted, listed, scale_text
from amptui.protocol.events import ForecastMade, Measured, PrecisionMapped, SeedsMeasured
from amptui.report.figures import figure, name, place, size, words
from amptui.report.page import Mark, Page
from amptui.session.side_by_side import comparison, recommendation, seed_claims, summaries
from amptui.session.state import SessionState

#: How many overflowing places are named; the JSON has them all.
_OVERFLOWS = 3
_CLAIM_MARKS: dict[str, Mark] = {"better": "ok", "worse": "warn", "none": "told"}


def tell_forecast(page: Page, event: ForecastMade) -> None:
    """What FP32 foretells of each dtype: overflows, the tightest place, the first loss scale."""
    if event.failed is not None:
        page.field("forecast", f"none: {words(event.failed)}", mark="told")
        return
    for forecast in event.dtypes:
        _tell_dtype(page, forecast)


def _tell_dtype(page: Page, forecast: DtypeForecast) -> None:
    if forecast.failed is not None:
        where = f" at {place(forecast.failed_at)}" if forecast.failed_at else ""
        page.field("forecast", f"{forecast.dtype} fails{where}: {words(forecast.failed)}", mark="warn")
    if forecast.overflows:
        first, *more = forecast.overflows
        page.field("forecast", f"{forecast.dtype} overflows: {_place(first, forecast.dtype)}", mark="warn")
        for other in more[: _OVERFLOWS - 1]:
            page.field("", f"then {_place(other, forecast.dtype)}")
        if len(more) >= _OVERFLOWS:
            page.field("", f"and {counted(len(more) - _OVERFLOWS + 1, 'more place')}")
    elif forecast.failed is None:
        page.field("forecast", f"{forecast.dtype}: nothing overflows{_tightest(forecast)}", mark="ok")
    scale = _scale(forecast)
    if scale:
        page.field("", scale)


def _place(told: PlaceForecast, dtype: str) -> str:
    """`stem.conv (convolution) reaches 230,400 in FP32 at step 4 · net.py:31`."""
    when = f" in case {name(told.case)}" if told.case is not None else f" at step {told.step}"
    where = f" · {place(told.line)}" if told.line else ""
    half = f", and is computed in {name(told.dtype)}," if told.dtype != dtype else ""
    what = {
        "result": f"reaches {_magnitude(told.largest)} in FP32{half}",
        "cast": f"is given {_magnitude(told.largest)}",
        "row": "has a row that lies wholly beyond the range",
    }[told.why]
    return f"{name(place_words(told))} {what}{when}{where}"


def _magnitude(value: float) -> str:
    """Four digits; up to ten million written out."""
    return f"{float(f'{value:.4g}'):,.0f}" if 1e4 <= value < 1e7 else figure(value)


def _tightest(forecast: DtypeForecast) -> str:
    forward = [told for told in forecast.places if told.phase == "forward"]
    if not forward or forecast.dtype != "float16" or not math.isfinite(forward[0].headroom):
        return ""
    told = forward[0]
    factor = _magnitude(float(f"{told.headroom:.2g}"))
    return f"; the largest value, {_magnitude(told.largest)} in {name(place_words(told))}, leaves a factor of {factor}"


def _scale(forecast: DtypeForecast) -> str:
    """The first loss scale, and what no scale mends. Nothing after an error: what comes behind it was not seen."""
    if forecast.dtype != "float16" or forecast.failed is not None:
        return ""
    never = _never(forecast)
    if forecast.initial_scale is None:
        return never
    said = f"a first loss scale of {scale_text(forecast.initial_scale)} should fit"
    if forecast.limited_by is not None:
        said += f", limited by the gradient in {name(place_words(forecast.limited_by))}"
    lost = next((told.lost for told in forecast.scales if told.scale == forecast.initial_scale), 0.0)
    if lost >= 0.001:
        said += f"; {lost:.1%} of the gradients round to zero at it"
    return f"{said}; {never}" if never else said


def _never(forecast: DtypeForecast) -> str:
    """ "no loss scale mends 3 iterations that overflow in forward", or ""."""
    forward, backward = forecast.overflowing, forecast.beyond_every_scale
    parts = []
    if forward:
        parts.append(f"{counted(forward, 'iteration')} that {'overflows' if forward == 1 else 'overflow'} in forward")
    if backward:
        parts.append(f"{counted(backward, 'iteration')} whose gradients overflow at scale 1 already")
    return f"no loss scale mends {' and '.join(parts)}" if parts else ""


def tell_precision(page: Page, event: PrecisionMapped, state: SessionState) -> None:
    """Whether autocast did anything, what it cost in casts, and what the forecast was worth."""
    half = event.ops.get("float16", 0) + event.ops.get("bfloat16", 0)
    casts = f" · {counted(event.casts, 'cast')}, {size(event.cast_bytes)} written" if event.casts else ""
    timed = f", {event.cast_seconds * 1000:.3g} ms" if event.cast_seconds is not None and event.casts else ""
    page.blank()
    page.field("precision", f"{words(event.words)}{casts}{timed} a step", mark="ok" if half else "warn")
    trial = next((trial for trial in reversed(state.trials) if trial.number == event.trial), None)
    beside = comparison(state, trial) if trial is not None else None
    for number, said in enumerate(beside.words if beside is not None else ()):
        page.field("" if number else "foreseen", words(said))


def tell_measured(page: Page, event: Measured) -> None:
    """Times and ratios with their spread, and nothing that the noise could have made."""
    page.field("policy", name(event.policy.dtype))
    tell_same_cases(page, event)
    tell_figures(page, event)
    tell_claims(page, event.claims)


def tell_same_cases(page: Page, event: Measured) -> None:
    """Whether what was timed is what was accepted: its cases once more, with diagnostics off."""
    if event.differs is not None:
        page.field("cases", f"not the accepted ones: {name(event.differs)} differs; nothing is stated", mark="fail")
    elif event.cases:
        page.field("cases", f"{counted(event.cases, 'case')} once more without diagnostics: the same bits", mark="ok")


def tell_figures(page: Page, event: Measured) -> None:
    """What was measured, and how."""
    page.field("FP32", _seconds(event.fp32))
    page.field("mixed", _seconds(event.mixed))
    page.field("ratio", f"{_ratio(event.speedup)}: FP32 over mixed, pair by pair")
    page.field("noise", f"{_ratio(event.same)}: FP32 over FP32, two equal runs")
    if event.memory is not None:
        kind = "peak" if event.memory.kind == "device" else "resident"
        page.field(kind, f"FP32 {size(event.memory.fp32)}, mixed {size(event.memory.mixed)}")
    blocks = f"{counted(event.rounds, 'round')} of {counted(event.steps_per_round, event.what)}"
    left_out = f" · {event.left_out} left out for a skip" if event.left_out else ""
    page.field("pairs", f"{blocks}, FP32 and mixed in random order · {event.clock}{left_out}")
    page.field("device", name(event.device))
    switches = [f"{name(key)} {name(value)}" for key, value in event.precision.items() if _matters(key, event.device)]
    page.field("for both", ", ".join(switches) or "the project's own arithmetic")


def _matters(switch: str, device: str) -> bool:
    """Switches of the device that was measured, and torch's own."""
    on_cuda = switch.startswith(("cuda", "cudnn", "fp16", "bf16"))
    return on_cuda == device.startswith("cuda") or switch == "float32 matmul"


def _seconds(spread: Spread) -> str:
    unit, factor = ("s", 1.0) if spread.median >= 1.0 else ("ms", 1000.0)
    low, median, high = (figure(value * factor) for value in (spread.low, spread.median, spread.high))
    return f"{median} {unit} a step (quartiles {low} to {high})"


def _ratio(spread: Spread) -> str:
    low, median, high = (f"{value:.2f}" for value in (spread.low, spread.median, spread.high))
    return f"{median} (quartiles {low} to {high})"


def tell_claims(page: Page, claims: Iterable[Claim]) -> None:
    """What may be said: better, worse, or nothing beyond the noise."""
    for claim in claims:
        _tell_claim(page, claim)


def _tell_claim(page: Page, claim: Claim) -> None:
    page.field(claim.subject, words(claim.words), mark=_CLAIM_MARKS[claim.direction])


def tell_seeds(page: Page, event: SeedsMeasured, state: SessionState) -> None:
    """Each trial's effect beside what other seeds do in FP32."""
    page.blank()
    page.field("yardstick", f"the FP32 stretch under {counted(event.seeds, 'other seed')}: draws and order of batches")
    for trial in state.trials:
        claims = seed_claims(state, trial)
        if claims and len(state.trials) > 1:
            page.field("policy", name(summaries(state)[state.trials.index(trial)].name))
        tell_claims(page, claims)


def tell_policies(page: Page, state: SessionState) -> None:
    """All policies side by side, and which one to take; nothing for a single one that was not measured."""
    advised = recommendation(state)
    if advised is None or (len(state.trials) < 2 and not state.measured):
        return
    page.blank()
    page.rule("Policies")
    for trial in summaries(state):
        _tell_policy(page, trial)
    page.blank()
    page.field("advice", words(advised.words), mark="ok" if advised.trial is not None else "told")


def _tell_policy(page: Page, trial: TrialSummary) -> None:
    marks: dict[str | None, Mark] = {"accept": "ok", "reject": "fail", "inconclusive": "warn", None: "fail"}
    failed = f": {listed(trial.failed)}" if trial.failed else ""
    counts = ", ".join(f"{count.applied} of {count.iterations} applied" for count in trial.counts)
    parts = [f"{trial.verdict or 'no verdict'}{failed}", counts]
    if trial.scaler is not None:
        parts.append(f"final scale {scale_text(trial.scaler.final)}")
    if trial.quality is not None:
        parts.append(f"quality {figure(trial.quality)}")
    page.field(name(trial.name), " · ".join(part for part in parts if part), mark=marks[trial.verdict])
    for claim in trial.claims:
        page.field("", words(claim.words))
