"""From a traced origin to a finding, in words."""

from __future__ import annotations

from collections.abc import Iterable

from amptui.engine.tracing.errors import ErrorPlace
from amptui.engine.tracing.origin import Link, Origin
from amptui.engine.tracing.values import TensorFacts
from amptui.findings.finding import Finding, Kind, Stage

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
    *,
    step: int | None,
    case: str | None = None,
    update: str | None = None,
    fp32_ok: bool,
    replayed: str,
) -> tuple[Finding, ...]:
    """The first few origins as findings. `replayed` says how faithful the replay was that showed them."""
    return tuple(
        Finding(
            kind=kind_of(origin, fp32_ok=fp32_ok),
            severity="fault",
            stage=_STAGES.get(origin.phase, "forward"),
            step=step,
            case=case,
            update=update,
            module=origin.module,
            op=origin.op or None,
            line=origin.line,
            fp32_ok=fp32_ok,
            evidence=(*evidence_of(origin), replayed),
            advice=advice_of(origin, fp32_ok=fp32_ok),
            facts=facts_of(origin, fp32_ok=fp32_ok),
        )
        for origin in list(origins)[:TOLD]
    )


def kind_of(origin: Origin, *, fp32_ok: bool) -> Kind:
    """What went wrong there. What true FP32 shows too is never the dtype's fault."""
    if not fp32_ok:
        return "not_precision"
    if origin.cause == "underflow" or (origin.root is not None and origin.root.cause == "underflow"):
        return "underflow"
    if origin.cause == "pole":  # a zero that FP32 does not have: something was rounded to it
        return "underflow"
    return "overflow"


def evidence_of(origin: Origin) -> tuple[str, ...]:
    """What was seen there, each a sentence fragment."""
    facts = []
    if origin.is_source:
        facts.append(f"{origin.tensor} is not finite ({' and '.join(origin.kinds)}) before anything is computed")
    else:
        made = " and ".join(origin.kinds) or "zero"
        facts.append(f"{origin.op} gives {made} in {origin.dtype}" + (f": {origin.source}" if origin.source else ""))
    facts.extend(_range(fact) for fact in origin.inputs[:3])
    if origin.exact is not None:
        facts.append(f"in float64 its largest result is {origin.exact:.4g}")
    if origin.root is not None:
        root = origin.root
        facts.append(
            f"it began at {root.op or root.tensor} in {root.module or 'the model'} ({root.line}): {_how(root)}"
        )
    if origin.chain:
        facts.append("from there: " + " → ".join(map(_station, origin.chain)))
    if origin.healed_by is not None:
        facts.append(f"no result shows it: {_station(origin.healed_by)} makes it finite again, and wrong")
    if origin.recomputed:
        facts.append("seen in the forward that backward repeats (activation checkpointing)")
    if origin.cuda is not None:
        facts.append(f"CUDA's autocast would run this op in {origin.cuda}")
    return tuple(facts)


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
    if fact.low is not None and fact.high is not None:
        shown += f" from {fact.low:.4g} to {fact.high:.4g}"
    return shown + (f", holds {' and '.join(fact.kinds)}" if fact.kinds else "")


def _station(link: Link) -> str:
    place = f" in {link.module}" if link.module else ""
    return f"{link.op}{place}" + (f" ({link.line})" if link.line else "")


def advice_of(origin: Origin, *, fp32_ok: bool) -> str:
    """What mends it, in a sentence or two."""
    if origin.is_source:
        return {
            "input": "Clean the data: find the batch or case by its index and drop or repair it.",
            "weights": "The parameter was not finite before this run: start from a checkpoint that is.",
            "buffer": "The buffer was not finite before this run: restore running statistics from a good checkpoint.",
        }.get(origin.phase, "The value comes from outside of the run: look at where it is made.")
    if not fp32_ok:
        return (
            "True FP32 fails at the same place: this is the formula or the data, not the precision. Guard the "
            "operation (an eps inside the root or the log, a clamp, a mask that keeps one entry), or mend the data."
        )
    root = origin.root
    if root is not None and root.scalar is not None:
        return f"Write an eps that {root.dtype} can hold (1e-4 or more), or run {_region(origin)} in FP32."
    if kind_of(origin, fp32_ok=fp32_ok) == "underflow":
        where = _region(root if root is not None and root.module else origin)
        return f"Compute this part in FP32 ({where}), or use the form that works on logits (logsigmoid, log_softmax)."
    if root is not None and root.cause == "deliberate":
        return (
            "Let every row keep at least one entry, or use a mask value that the dtype holds: torch.finfo(x.dtype).min."
        )
    return (
        f"Run {_region(origin)} in FP32: Policy(fp32_regions=[{origin.module!r}]), or scale the operands down before."
    )


def _region(origin: Origin) -> str:
    if _is_region(origin):
        return f"module {origin.module!r}"
    return f"the function {origin.module}" if origin.module else "this operation"


def regions_of(origin: Origin) -> list[str]:
    """The modules to run in FP32: the place itself, or the layers that made the values half for a user's function."""
    if origin.is_source:
        return []
    return [origin.module] if _is_region(origin) else [maker for maker in origin.makers if maker]


def _is_region(origin: Origin) -> bool:
    """Whether the place is a module that an FP32 region can be; a user's function is none."""
    return origin.module not in ("", "loss", "outputs", "decide") and not origin.is_source


def facts_of(origin: Origin, *, fp32_ok: bool) -> dict[str, object]:
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
        "fp32_regions": regions_of(origin) if fp32_ok else [],
    }


_AUTOCAST_PROBLEMS = ("thread_without_autocast", "recompute_without_autocast", "autocast_device")


def finding_of_error(
    place: ErrorPlace, *, step: int | None, case: str | None, update: str | None, where: str | None
) -> Finding:
    """User code that raises under the policy and not in FP32, located by a traced run."""
    kind: Kind = "autocast_state" if place.problem in _AUTOCAST_PROBLEMS else "dtype"
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
        evidence=(f"{place.error_type} in {place.phase}: {place.message}", *inputs),
        advice=place.mend or "Cast where the line mixes dtypes, or run the module in FP32.",
        facts={"problem": place.problem, "source": place.source, "phase": place.phase, "autocast": place.autocast},
    )
