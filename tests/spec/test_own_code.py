"""The user's files are told from installed ones, wherever either lies."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import amptui.project
from amptui.spec.own_code import OwnCode, own_code


def test_python_installed_packages_and_amptui_are_not_the_users(tmp_path: Path) -> None:
    own = own_code([tmp_path])
    assert own.holds(str(tmp_path / "train.py"))
    assert own.holds("/somewhere/else/model.py")
    for file in (os.__file__, json.__file__, pytest.__file__, amptui.project.__file__):
        assert not own.holds(file)
    for file in ("<frozen importlib._bootstrap>", "<string>", "", str(tmp_path / "fast.so")):
        assert not own.holds(file)


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/p/train.py", True),
        ("/p/.venv/lib/site-packages/torch/nn.py", False),
        ("/p/.venv/lib/site-packages/mine/train.py", True),
        ("/p/.venv/lib/site-packages/mineral/x.py", False),
        ("/other/x.py", True),
    ],
)
def test_the_longest_folder_decides(file: str, users: bool) -> None:
    packages = "/p/.venv/lib/site-packages"
    assert OwnCode(own=("/p", f"{packages}/mine"), installed=(packages,)).holds(file) is users


def test_the_users_innermost_line_of_a_traceback(tmp_path: Path) -> None:
    code = "def f():\n    return json.loads('{')\n"
    names: dict[str, object] = {"json": json}
    exec(compile(code, str(tmp_path / "train.py"), "exec"), names)
    with pytest.raises(json.JSONDecodeError) as caught:
        names["f"]()  # type: ignore[operator]
    own = OwnCode(own=(str(tmp_path),), installed=own_code([]).installed)
    assert str(own.innermost(caught.value.__traceback__)) == f"{tmp_path}/train.py:2"
    assert own.innermost(None) is None
