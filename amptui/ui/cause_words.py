"""A finding's cause in one sentence, for someone who has never heard of loss scaling."""

from __future__ import annotations

from collections.abc import Mapping

from amptui.findings.finding import Finding, Kind
from amptui.findings.words import op_words

#: The largest finite value and the decimal digits of each half type.
_LARGEST = {"float16": "65,504", "bfloat16": "3.4e38"}
_DIGITS = {"float16": "3", "bfloat16": "2"}

_CAUSES: Mapping[Kind, str] = {
    "overflow": "A number became too large for {dtype} (it ends at {largest}) and turned into infinity",
    "underflow": "Numbers became too small for {dtype} and were rounded to zero",
    "rounding": "{dtype} keeps about {digits} digits, and this place needs more",
    "decision": "The model decides differently than it does in FP32",
    "dtype": "Tensors of different number formats met where torch wants one, or the operation has no such format",
    "autocast_state": "Autocast, which chooses the number format of each operation, is not on where this code runs",
    "not_precision": "This has nothing to do with number formats: FP32 has the fault too",
    "randomness": "The same run twice does not give the same numbers, so that no difference can be blamed on {dtype}",
    "scaler": "The loss scale, the factor that keeps small gradients from vanishing, does not do its work",
    "state_damage": "An iteration that failed has left values that are not finite in what later iterations use",
    "loop_order": "The steps of the training loop are not in the order that scaled gradients need",
    "checkpoint": "What is saved is not enough to go on exactly from there, or is damaged",
}
_IN_GRADIENT = (
    "On the way back, a gradient became too large for {dtype} (it ends at {largest}) and turned into infinity"
)
_BY_SCALE = (
    "Gradients are multiplied by a factor, the loss scale, so that small ones survive in {dtype}. "
    "Here the factor is too large: a gradient turned into infinity"
)


def cause(finding: Finding, dtype: str, *, smaller_scale_fits: bool = False) -> str:
    """What went wrong and where, as a sentence. `smaller_scale_fits`: a replay at a smaller loss scale was finite."""
    dtype = str(finding.facts.get("dtype") or dtype)
    text = _CAUSES[finding.kind]
    if finding.kind == "overflow" and finding.stage in ("backward", "gradient"):
        text = _BY_SCALE if smaller_scale_fits else _IN_GRADIENT
    said = text.format(dtype=dtype, largest=_LARGEST.get(dtype, "its largest value"), digits=_DIGITS.get(dtype, "few"))
    return f"{said}{_where(finding)}."


def _where(finding: Finding) -> str:
    if finding.op is not None:
        op = op_words(finding.op)
        return f": {op} in {finding.module}" if finding.module else f": {op}"
    return f": in {finding.module}" if finding.module else ""
