"""The result of a check: what kept it from judging is one message with place and mend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from amptui.report.result import error
from amptui.session.death import EngineDeath
from amptui.session.state import died
from tests.report import sessions
from tests.ui.test_moves import after

DEATH = EngineDeath(how="exit code 70", words="The engine met an error and ended: oh", last_output=("last words",))


def told(**changed: Any) -> Any:
    """The error of a session whose engine told an error, and ended of it."""
    *before, failed = sessions.engine_failed()
    return error(died(after(*before, replace(failed, **changed)), DEATH))  # type: ignore[type-var]


def test_the_error_that_an_engine_ended_of_says_more_than_its_end() -> None:
    said = told()
    assert (said["code"], said["where"]) == ("engine-failed", "amptui/engine/x.py:3")
    assert said["message"] == "an assertion of amptui does not hold"
    assert "amptui restore" in said["hint"]
    assert said["output"] == ["last words"]


def test_what_the_project_raised_into_the_engine_comes_with_its_mend() -> None:
    assert told(where="/p/train.py:3", hint="it must not raise")["hint"] == "it must not raise"
