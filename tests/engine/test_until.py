"""What a run goes on until, told with the figure that met the limit."""

from __future__ import annotations

from dataclasses import replace

from amptui.engine.until import reached
from amptui.protocol.commands import Condition
from tests.report.stages import iteration


def test_a_figure_is_told_apart_from_its_limit_and_with_its_update_where_there_are_several() -> None:
    record = iteration(3).record
    [update] = record.updates
    limit = Condition(name="norm", value=2.5)

    def said(*norms: float) -> str | None:
        updates = tuple(replace(update, update=f"u{n}", norm=norm) for n, norm in enumerate(norms))
        return reached(limit, replace(record, updates=updates), 0)

    assert said(3.1) == "until norm: 3.1 is over 2.5"
    assert said(2.50000001) == "until norm: 2.50000001 is over 2.5"
    assert said(1.0, 3.1) == "until norm: 3.1 in u1 is over 2.5"
    assert said(float("inf"), 1.0) == "until norm: inf in u0 is not finite"
    assert said(2.5, 1.0) is None
