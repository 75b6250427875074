"""A SpecError is one sentence that is safe to print, whatever a file or an exception called itself."""

from __future__ import annotations

import pickle

from amptui.spec.error import SpecError


def test_place_message_and_mend_read_as_one_sentence() -> None:
    error = SpecError("settings", "criteria.rtol is '1e-3x'", "write a number such as 0.001", "amptui.yaml:7:9")
    assert str(error) == "amptui.yaml:7:9: criteria.rtol is '1e-3x'; write a number such as 0.001"
    assert str(SpecError("form", "'train.py' has no ':'")) == "'train.py' has no ':'"


def test_foreign_text_is_made_visible_and_short() -> None:
    error = SpecError("raises", "x\x1b[2J\n", "y\u202e" + "z" * 9999, "a\x07.py:1")
    assert str(error).startswith("a\\x07.py:1: x\\x1b[2J\\x0a; y\\u202ez")
    assert len(str(error)) < 1400


def test_it_can_be_sent_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(SpecError("form", "m", "h", "w:1")))
    assert (error.code, error.message, error.hint, error.where) == ("form", "m", "h", "w:1")
