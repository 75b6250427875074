"""Findings about tensors: values that are not finite, lost moments, half precision where it does harm, key prefixes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from amptui.findings.finding import Finding
from amptui.inspection.nodes import HALF
from amptui.inspection.notes import fault, notice
from amptui.inspection.result import TensorFact
from amptui.inspection.rules.evidence import Evidence
from amptui.inspection.survey import SeenTensor

_WORDS = {
    "parameters": "the model's weights or buffers",
    "ema": "the averaged (EMA) weights",
    "master_copies": "the float32 master copies",
    "optimizer_state": "the optimizer's state",
    "optimizer_step": "the optimizer's step counters",
}
_MASK_NAME = re.compile(r"mask|bias_k|alibi|causal|tril|triu|attn_bias")
_SECOND_MOMENTS = re.compile(r"(exp_avg_sq|max_exp_avg_sq|sqr_avg|square_avg|exp_inf|sum)$")
_FIRST_OF = {"exp_avg_sq": "exp_avg", "sqr_avg": "grad_avg", "square_avg": "momentum_buffer"}
_PREFIXES = ("module.", "_orig_mod.", "_forward_module.")


def tensor_findings(evidence: Evidence) -> Iterator[Finding]:
    """Every finding that the tensors themselves give reason to."""
    yield from _nonfinite(evidence.tensors)
    yield from _lost_moments(evidence.tensors)
    yield from _half(evidence)
    yield from _zero_model(evidence.tensors)
    yield from _prefixes(evidence.sightings.tensors)


def is_deliberate(tensor: TensorFact) -> bool:
    """Whether the only values that are not finite are minus infinity in what is named like a mask."""
    return tensor.nonfinite == tensor.minus_infinite and _MASK_NAME.search(tensor.path.lower()) is not None


def _nonfinite(tensors: Sequence[TensorFact]) -> Iterator[Finding]:
    advice = {
        "parameters": "These weights are lost: go back to the last save before the damage, or rebuild the buffers "
        "(BatchNorm statistics) by a pass over clean data in FP32.",
        "ema": "Drop the averaged weights and start them again from the model's.",
        "master_copies": "Training continues from the master copies: go back to the last save before the damage.",
        "optimizer_state": "Drop this optimizer state and warm it up again, or go back to an earlier save: it poisons "
        "the weights at the next update.",
        "optimizer_step": "Drop this optimizer state: its step counter is not a number.",
    }
    for role, words in _WORDS.items():
        bad = [tensor for tensor in tensors if tensor.role == role and tensor.nonfinite and not is_deliberate(tensor)]
        if bad:
            count = sum(tensor.nonfinite or 0 for tensor in bad)
            where = _counted(len(bad), "tensor")
            what = f"{words}: {_counted(count, 'value')} in {where} {'is' if count == 1 else 'are'} not finite"
            shown = tuple(f"{tensor.path}: {tensor.nonfinite:,} of {tensor.elements:,}" for tensor in bad[:5])
            yield fault("nonfinite", what, *shown, advice=advice[role], path=bad[0].path, role=role)
    other = [tensor for tensor in tensors if tensor.role in ("other", "rng") and tensor.nonfinite]
    if other:
        what = f"{_counted(len(other), 'recorded value')} outside the model not finite, {other[0].path} first"
        yield notice("nonfinite-record", what, advice="Usual for best scores that were never set.", path=other[0].path)


def _lost_moments(tensors: Sequence[TensorFact]) -> Iterator[Finding]:
    """Second moments that are all zero beside first moments that are not: rounded away in half precision."""
    by_path = {tensor.path: tensor for tensor in tensors if tensor.role == "optimizer_state"}
    lost = []
    for path, tensor in by_path.items():
        stem, _, slot = path.rpartition(".")
        first = by_path.get(f"{stem}.{_FIRST_OF.get(slot, '')}")
        if tensor.zero and first is not None and first.zero is False:
            lost.append(tensor)
    if lost:
        what = f"second moments lost: {_counted(len(lost), 'tensor')} all zero beside first moments that are not"
        why = f"{lost[0].path} is {lost[0].dtype}" if lost[0].dtype in HALF else f"{lost[0].path} first"
        advice = "Discard the optimizer state, or warm the moments up before the first update: it would divide by eps."
        yield fault("moments-lost", what, why, advice=advice, path=lost[0].path)


def _half(evidence: Evidence) -> Iterator[Finding]:
    dtypes = _dtypes(evidence.tensors)
    parameters = dtypes.get("parameters", Counter())
    for dtype in ("float16", "bfloat16"):
        moments = [
            tensor
            for tensor in evidence.tensors
            if tensor.role == "optimizer_state" and tensor.dtype == dtype and tensor.elements > 1
        ]
        seconds = [tensor for tensor in moments if _SECOND_MOMENTS.search(tensor.path)]
        chosen = seconds or moments
        if not chosen:
            continue
        what = f"the optimizer's state is {dtype}: {_counted(len(moments), 'tensor')}, {chosen[0].path} among them"
        if dtype == "bfloat16" and parameters.get("bfloat16"):
            why = "as the weights are; updates below 1/256 of a moment are lost"
            yield notice(
                "moments-half", what, why, advice="Keep moments in float32 where memory allows.", path=chosen[0].path
            )
            continue
        why = "float16 has no values between 0 and 6e-8: small second moments become 0, large ones infinite"
        if dtype == "bfloat16":
            why = "bfloat16 keeps 8 bits: updates below 1/256 of a moment are lost"
        advice = "Discard the optimizer state on resume, and save it without .half(): optimizer.state_dict() as it is."
        yield fault("moments-half", what, why, advice=advice, path=chosen[0].path)
    yield from _half_steps(evidence)
    if parameters.get("float16") and "master_copies" not in dtypes and evidence.sightings.optimizers:
        yield from _half_weights(evidence, parameters)


def _half_weights(evidence: Evidence, parameters: Counter[str]) -> Iterator[Finding]:
    what = f"weights are stored in float16 ({parameters['float16']} tensors) without float32 master copies"
    if evidence.layout.halves_on_save or parameters.get("float32", 0) > parameters["float16"]:
        yield notice("weights-half", what, "a resume loses the lower bits of every weight")
        return
    why = "a resume loses the lower bits of every weight, and GradScaler refuses float16 gradients"
    advice = "Train with float32 weights under autocast and save those; convert to half only for serving."
    yield fault("weights-half", what, why, advice=advice)


def _half_steps(evidence: Evidence) -> Iterator[Finding]:
    for optimizer in evidence.sightings.optimizers:
        for dtype in sorted(optimizer.step_dtypes & HALF):
            limit = 2048 if dtype == "float16" else 256
            what = f"{optimizer.path}: step counters are {dtype}, which stops counting at {limit:,}"
            advice = (
                "Bias correction goes wrong from there: set the counters from the loop's step on resume, in float32."
            )
            yield fault("step-half", what, advice=advice, path=optimizer.path)


def _zero_model(tensors: Sequence[TensorFact]) -> Iterator[Finding]:
    """A model whose every weight matrix is zero was saved before it was filled, or lost its data."""
    matrices = [
        tensor
        for tensor in tensors
        if tensor.role == "parameters" and len(tensor.shape) > 1 and tensor.zero is not None
    ]
    if len(matrices) > 1 and all(tensor.zero for tensor in matrices):
        what = f"all {len(matrices)} weight matrices are zero"
        advice = (
            "The file holds no trained model: its data never reached the disk, or it was saved before it was filled."
        )
        yield fault("weights-zero", what, advice=advice, path=matrices[0].path)


def _prefixes(tensors: Sequence[SeenTensor]) -> Iterator[Finding]:
    """Key prefixes that a wrapper left in the names, and state dicts that have them only in part."""
    groups: dict[str, list[str]] = {}
    for tensor in tensors:
        if tensor.role in ("parameters", "ema"):
            group = tensor.path.removesuffix(tensor.key).rstrip(".: ")
            groups.setdefault(group, []).append(tensor.key)
    for group, names in groups.items():
        if "n_averaged" in names:  # torch.optim.swa_utils.AveragedModel: the prefix is its own
            continue
        for prefix in _PREFIXES:
            count = sum(name.startswith(prefix) for name in names)
            if not count:
                continue
            where = group or "the state dict"
            wrapper = "torch.compile" if prefix == "_orig_mod." else "a parallel wrapper (DataParallel, DDP)"
            if count < len(names):
                what = f"{where}: {count} of {len(names)} keys begin with {prefix!r}, the others do not"
                why = "one strict load cannot fit both; with strict=False half the model stays at its first values"
                advice = f"Remove the prefix: {{k.removeprefix({prefix!r}): v for k, v in state.items()}}."
                yield fault("prefix-mixed", what, why, advice=advice, path=where)
            else:
                what = f"{where}: every key begins with {prefix!r}, left by {wrapper}"
                why = "a bare model refuses it, or with strict=False silently loads nothing"
                advice = f"Load it into the wrapped model, or remove the prefix: {{k.removeprefix({prefix!r}): v …}}."
                yield notice("prefix", what, why, advice=advice, path=where)


def _dtypes(tensors: Sequence[TensorFact]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for tensor in tensors:
        found.setdefault(tensor.role, Counter())[tensor.dtype] += 1
    return found


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
