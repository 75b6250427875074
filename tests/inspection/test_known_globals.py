"""Globals are graded by what a real load of them could do."""

from __future__ import annotations

import pytest

from amptui.inspection.known_globals import grade, graded
from amptui.inspection.nodes import Global
from amptui.inspection.pickle_walk import Use


def graded_as(dotted: str, use: Use) -> str:
    module, _, name = dotted.rpartition(".")
    return grade(Global(module, name), use)


@pytest.mark.parametrize(
    ("dotted", "use", "wanted"),
    [
        ("torch._utils._rebuild_tensor_v2", Use(calls=9), "safe"),
        ("collections.OrderedDict", Use(calls=1), "safe"),
        ("numpy._core.multiarray._reconstruct", Use(calls=1), "known"),
        ("numpy.core.multiarray.scalar", Use(calls=1), "known"),
        ("argparse.Namespace", Use(makes=1), "known"),
        ("pathlib.PosixPath", Use(calls=1), "known"),
        ("deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", Use(makes=1), "known"),
        ("torch.nn.modules.linear.Linear", Use(makes=1), "known"),
        ("torch.nn.functional.relu", Use(), "own"),
        ("torch.nn.functional.relu", Use(calls=1), "dangerous"),
        ("__main__.Net", Use(makes=1), "own"),
        ("__main__.conv_block", Use(makes=1), "own"),
        ("__main__.build", Use(calls=1), "dangerous"),
        ("models.resnet.ResNet", Use(calls=1), "own"),
        ("builtins.getattr", Use(calls=2, lookups=2), "known"),
        ("builtins.getattr", Use(calls=2, lookups=1), "dangerous"),
        ("builtins.getattr", Use(), "dangerous"),
        ("os.system", Use(), "dangerous"),
        ("posix.system", Use(calls=1), "dangerous"),
        ("io.open", Use(calls=1), "dangerous"),
        ("builtins.eval", Use(), "dangerous"),
        ("subprocess.Popen", Use(makes=1), "dangerous"),
        ("torch.load", Use(calls=1), "dangerous"),
        ("pip.main", Use(), "dangerous"),
    ],
)
def test_grade(dotted: str, use: Use, wanted: str) -> None:
    assert graded_as(dotted, use) == wanted


def test_dangerous_ones_come_first_and_the_worst_grade_counts() -> None:
    uses = {
        Global("torch", "Size"): Use(calls=1),
        Global("pkg", "fn"): Use(),
        Global("os", "system"): Use(),
    }
    uses[Global("pkg", "fn")] = Use(calls=1)  # the same name from another file, called there
    assert list(graded(uses).items()) == [("pkg.fn", "dangerous"), ("os.system", "dangerous"), ("torch.Size", "safe")]
