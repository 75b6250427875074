"""Every framework's layout is recognised, with its scaler, counters, parts and gaps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from amptui.inspection.reading import inspect_path
from tests.inspection.frameworks import LAYOUTS


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, tmp_path: Path) -> None:
    path, expected = LAYOUTS[name](tmp_path)
    found = inspect_path(str(path))
    codes = {finding.facts["code"] for finding in found.findings if finding.severity == "fault"}
    assert found.readable is (name != "dcp_unfinished")
    assert found.format == expected.format
    assert codes == set(expected.faults)
    if expected.scale is not None:
        assert expected.scale in [scaler.scale for scaler in found.scalers]
    if expected.tracker is not None:
        assert found.scalers[0].growth_tracker == expected.tracker
    if expected.scaler_path is not None:
        assert [scaler.path for scaler in found.scalers] == [expected.scaler_path]
    for wanted, told in (
        (expected.loop, found.steps.loop),
        (expected.optimizer, found.steps.optimizer),
        (expected.skipped, found.steps.skipped),
    ):
        assert wanted is None or wanted == told
    assert set(expected.missing) <= set(found.missing)
    assert set(expected.present) <= set(found.present)
    assert not set(found.missing) & set(found.present)
    assert set(expected.needs) <= set(found.needs_code)
    assert found.dangerous == ()
    if expected.parameters:
        of_model = Counter(found.dtypes["parameters"]) + Counter(found.dtypes.get("buffers", {}))
        assert of_model == expected.parameters
