"""What was traced, in words."""

from __future__ import annotations

from amptui.engine.diagnosis.setting import Setting
from amptui.engine.diagnosis.translating import evidence_of
from amptui.engine.tracing.origin import Link, Origin


def test_a_cast_on_the_way_reads_as_an_operation() -> None:
    links = tuple(Link(phase="forward", module="head", op=op, line=None, kinds=("inf",)) for op in ("to", "addmm"))
    root = Origin(phase="forward", module="head", op="to", line=None, cause="overflow")
    origin = Origin(
        phase="forward", module="head", op="to", line=None, cause="overflow", kinds=("inf",), dtype="float16",
        chain=links, root=root,
    )  # fmt: skip
    begins, made, chain = evidence_of(origin, Setting(dtype="float16", fp32_ok=True))
    assert begins.startswith("it begins at to() in head: ")
    assert made == "to() is inf in float16"
    assert chain == "from there: to() in head → addmm in head"
