"""From a traced origin to a finding, in words."""

from __future__ import annotations

from collections.abc import Iterable

from amptui.engine.diagnosis.advice import advice_of
from amptui.engine.diagnosis.mending import Mend
from amptui.engine.diagnosis.setting import Setting, kind_of
from amptui.engine.live import LiveUpdate
from amptui.engine.tracing.errors import ErrorPlace
from amptui.engine.tracing.origin import Link, Origin
from amptui.engine.tracing.values import TensorFacts
from amptui.findings.finding import Finding, Kind, Stage
from amptui.findings.raised import MET_BY_A_CHECK, kind_of_error
from amptui.findings.words import op_words
from amptui.text import safe_text

#: Origins of one failure that are told; the first is the cause, more are other causes.
TOLD = 3


_STAGES: dict[str, Stage] = {
    "forward": "forward",
    "loss": "loss",
    "backward": "gradient",
    "unscale": "gradient",
    "clip": "gradient",
    "input": "input",
    "weights": "weights",
    "buffer": "buffer",
    "constant": "input",
    "memory": "forward",
}


def findings_of_origins(
    origins: Iterable[Origin],
    setting: Setting,
    *,
    step: int | None,
    case: str | None = None,
    update: str | None = None,
    replayed: str,
    mend: Mend | None = None,
) -> tuple[Finding, ...]:
    """The first few origins as findings. `replayed` says how faithful the replay was that showed them.

    `mend` is what a search for FP32 regions proved; it belongs to all origins, and is told with the first.
    """
    told = _told_once(origins)[:TOLD]
    return tuple(
        Finding(
            kind=kind_of(origin, setting),
            severity="fault",
            stage=_STAGES.get(origin.phase, "forward"),
            step=step,
            case=case,
            update=update,
            module=origin.module,
            op=origin.op or None,
            line=origin.line,
            fp32_ok=setting.fp32_ok,
            evidence=(
                *evidence_of(origin, setting),
                *((mend.words,) if mend is not None and mend.words and not number else ()),
                replayed,
            ),
            advice=advice_of(origin, setting, mend),
            facts=facts_of(origin, () if mend is None or number else mend.regions),
        )
        for number, origin in enumerate(told)
    )


def _told_once(origins: Iterable[Origin]) -> list[Origin]:
    """Without the gradient of what already went wrong in forward."""
    told: list[Origin] = []
    for origin in origins:
        known = any((o.op, o.line) == (origin.op, origin.line) for o in told)
        if not (known and origin.phase == "backward"):
            told.append(origin)
    return told


def evidence_of(origin: Origin, setting: Setting) -> tuple[str, ...]:
    """What was seen there, the cause first, each a sentence fragment."""
    facts = []
    if origin.root is not None:
        root = origin.root
        where = f" in {root.module}" if root.module else ""
        what = op_words(root.op) if root.op else root.tensor
        facts.append(f"it begins at {what}{where}{_at(root.line)}: {_how(root)}")
    if origin.is_source:
        facts.append(f"{origin.tensor} is not finite ({' and '.join(origin.kinds)}) before anything is computed")
    else:
        made = " and ".join(origin.kinds) or "zero"
        slope = "the gradient of " if origin.phase == "backward" else ""
        text = f": {_without_comment(origin.source)}" if origin.source else ""
        facts.append(f"{slope}{_called(origin)} is {made} in {origin.dtype}{text}")
        facts.extend(_range(fact) for fact in _telling(origin))
        if origin.exact is not None and setting.fp32_ok:
            facts.append(f"the exact result is {origin.exact:.4g}, {_reach(origin)}")
    if not origin.is_source and setting.is_hard_coded(origin):
        facts.append(_by_hand(origin, setting))
    if origin.chain:
        facts.append("from there: " + " → ".join(map(_station, origin.chain)))
    if origin.healed_by is not None:
        facts.append(f"no result shows it: {_station(origin.healed_by)} makes it finite again, and wrong")
    if origin.recomputed:
        facts.append("seen in the forward that backward repeats (activation checkpointing)")
    if origin.cuda is not None:
        facts.append(f"on CUDA, autocast runs this op in {origin.cuda}")
    return tuple(facts)


def _called(origin: Origin) -> str:
    """The op by the name that the user's code calls it by, where that is another one."""
    api = (origin.api or "").strip("_")
    return f"{api} ({origin.op})" if api and api != origin.op.strip("_") else op_words(origin.op)


def _telling(origin: Origin) -> list[TensorFacts]:
    """The inputs that say most: the two with the largest values, in their order; biases seldom matter."""
    ranked = sorted(origin.inputs, key=lambda fact: -(fact.absmax or 0.0))[:2]
    return [fact for i, fact in enumerate(origin.inputs) if fact in ranked and fact not in origin.inputs[:i]]


def _reach(origin: Origin) -> str:
    return "float16 ends at 65504" if origin.dtype == "float16" else f"beyond {origin.dtype}"


def _by_hand(origin: Origin, setting: Setting) -> str:
    if origin.autocast is not None and origin.autocast != setting.dtype:
        return f"an autocast of the project's own runs this in {origin.autocast}, the policy says {setting.dtype}"
    return f"{origin.dtype} is written into the code here, so FP32 has it too"


def _at(line: str | None) -> str:
    return f" ({line})" if line else ""


def _how(origin: Origin) -> str:
    if origin.scalar is not None:
        return f"{origin.scalar:g} is zero in {origin.dtype}"
    if origin.how == "one":
        return f"values just below 1 are rounded to 1 in {origin.dtype}"
    if origin.cause == "underflow":
        return f"values are rounded to zero in {origin.dtype}"
    if origin.cause == "deliberate":
        return "an infinity that was written on purpose"
    return f"{' and '.join(origin.kinds)} in {origin.dtype}"


def _range(fact: TensorFacts) -> str:
    """`weights fc.weight float32 (4, 8) from -1.5 to 2`, the finite extremes and what is not finite."""
    shown = f"{fact.name or 'input'} {fact.dtype} {fact.shape}"
    if fact.low is not None and fact.low == fact.high:
        shown += f", {fact.low:.4g} everywhere" if fact.shape else f", {fact.low:.4g}"
    elif fact.low is not None and fact.high is not None:
        shown += f" from {fact.low:.4g} to {fact.high:.4g}"
    return shown + (f", holds {' and '.join(fact.kinds)}" if fact.kinds else "")


def _without_comment(source: str) -> str:
    """A line of source without what is set off behind it as a comment."""
    return source.partition("  #")[0].rstrip()


def _station(link: Link) -> str:
    place = f" in {link.module}" if link.module else ""
    return f"{op_words(link.op)}{place}{_at(link.line)}"


def facts_of(origin: Origin, regions: tuple[str, ...] = ()) -> dict[str, object]:
    """Plain values for machines."""
    root = origin.root
    return {
        "cause": origin.cause,
        "dtype": origin.dtype,
        "aten": origin.aten,
        "source": origin.source,
        "root_op": root.op if root is not None else None,
        "root_module": root.module if root is not None else None,
        "root_line": root.line if root is not None else None,
        "reaches": list(origin.reaches[:8]),
        "cuda": origin.cuda,
        "api": origin.api,
        "fp32_regions": list(regions),
    }


_CAST = "Cast where the line mixes dtypes, or run the module in FP32."
_AUTOCAST_PROBLEMS = ("thread_without_autocast", "recompute_without_autocast", "autocast_device")


def finding_of_error(
    place: ErrorPlace,
    *,
    step: int | None,
    case: str | None,
    update: str | None,
    where: str | None,
    mend: Mend | None = None,
) -> Finding:
    """User code that raises under the policy and not in FP32, located by a traced run."""
    kind: Kind = "autocast_state" if place.problem in _AUTOCAST_PROBLEMS else "dtype"
    if place.problem == "other":
        kind = kind_of_error(place.error_type, place.message)
    inputs = [_range(fact) for fact in place.inputs[:3]]
    return Finding(
        kind=kind,
        severity="fault",
        stage="error",
        step=step,
        case=case,
        update=update,
        module=place.module,
        op=place.op,
        line=place.line or where,
        fp32_ok=True,
        evidence=(
            f"{place.error_type}: {safe_text(place.message, 300)}",
            *inputs,
            *((mend.words,) if mend is not None and mend.words else ()),
        ),
        advice=place.mend or (MET_BY_A_CHECK if kind == "overflow" else _CAST),
        facts={
            "problem": place.problem,
            "source": place.source,
            "phase": place.phase,
            "autocast": place.autocast,
            "fp32_regions": list(mend.regions) if mend is not None else [],
        },
    )


def finding_of_stale_cast(update: LiveUpdate, step: int) -> Finding:
    """A loss that is right once autocast's cache of cast weights is off."""
    return Finding(
        kind="autocast_state",
        severity="fault",
        stage="loss",
        step=step,
        update=update.name,
        module="loss",
        line=update.facts.loss_at,
        fp32_ok=True,
        evidence=(
            "without autocast's cache of cast weights the loss is FP32's",
            "so weights change inside one autocast context, and half copies made before are used again",
        ),
        advice="Open one autocast context per forward, or call torch.clear_autocast_cache() after the weights were "
        "changed, or write torch.autocast(…, cache_enabled=False).",
    )
