"""What mends an origin, in a sentence or two."""

from __future__ import annotations

from amptui.engine.diagnosis.mending import Mend
from amptui.engine.diagnosis.setting import Setting, kind_of
from amptui.engine.tracing.origin import Origin


def advice_of(origin: Origin, setting: Setting, mend: Mend | None = None) -> str:
    """What mends it, in a sentence or two. Only regions that a replay has proved are recommended as such."""
    if origin.is_source:
        return {
            "input": "Clean the data: find the batch or case by its index and drop or repair it.",
            "weights": "The parameter was not finite before this run: start from a checkpoint that is.",
            "buffer": "The buffer was not finite before this run: restore running statistics from a good checkpoint.",
        }.get(origin.phase, "The value comes from outside of the run: look at where it is made.")
    if setting.is_hard_coded(origin):
        return (
            "Remove the dtype that is written into the code here: let the policy's autocast decide, or cast to float32."
        )
    if not setting.fp32_ok:
        return (
            "True FP32 fails at the same place: this is the formula or the data, not the precision. Guard the "
            "operation (an eps inside the root or the log, a clamp, a mask that keeps one entry), or mend the data."
        )
    in_fp32 = _in_fp32(origin, mend)
    root = origin.root
    if root is not None and root.scalar is not None:
        return f"Write an eps that {root.dtype} can hold (1e-4 or more), or {in_fp32}."
    if root is not None and root.cause == "deliberate":
        return (
            "Let every row keep at least one entry, or use a mask value that the dtype holds: torch.finfo(x.dtype).min."
        )
    kind = kind_of(origin, setting)
    if kind == "overflow":
        return f"{_capital(in_fp32)}; or scale the operands down before this operation."
    if (root is not None and root.op == "sigmoid") or origin.op.startswith("log"):
        return f"Use the form that works on logits (logsigmoid, log_softmax, …_with_logits), or {in_fp32}."
    return f"{_capital(in_fp32)}; or add an eps that {origin.dtype} can hold (1e-4 or more)."


def _in_fp32(origin: Origin, mend: Mend | None) -> str:
    if mend is not None and mend.regions:
        inside = any(origin.module == region or origin.module.startswith(f"{region}.") for region in mend.regions)
        if not inside:  # the op is no module's that can be a region: what goes into it can be kept in FP32
            makers = " and ".join(mend.regions)
            return f"keep {makers} in FP32, which gives this float32: Policy(fp32_regions={list(mend.regions)!r})"
        return f"keep this in FP32: Policy(fp32_regions={list(mend.regions)!r})"
    if origin.module in ("loss", "outputs", "decide", ""):
        return f"cast to float32 before this line ({origin.module or 'the model'}: x.float())"
    return f"cast to float32 before this line, inside torch.autocast(…, enabled=False) (module {origin.module!r})"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
