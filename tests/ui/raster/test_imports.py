"""Pictures need nothing beyond the standard library, and nothing on the screen's side needs torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHECK = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[2:])))
"""


@pytest.mark.parametrize(
    ("package", "absent"),
    [
        ("amptui.ui.raster", ["textual", "rich", "yaml", "platformdirs", "torch", "numpy"]),
        ("amptui.ui.widgets", ["torch", "numpy"]),
    ],
)
def test_a_package_loads_without(package: str, absent: list[str]) -> None:
    found = subprocess.run([sys.executable, "-c", CHECK, package, *absent], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []
