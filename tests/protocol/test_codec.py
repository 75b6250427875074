"""Lines keep every value, NaN and infinity included, and what is not a message is refused by name."""

from __future__ import annotations

import json
import math
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amptui.findings.finding import Finding
from amptui.project import Policy, Scaler
from amptui.protocol import commands, events
from amptui.protocol.codec import (
    Floats,
    ProtocolError,
    UnknownKind,
    decode,
    decode_envelope,
    encode,
    encode_envelope,
    to_json,
)
from tests.protocol.messages import COMMANDS, EVENTS, messages_of

quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", EVENTS + COMMANDS, ids=lambda kind: kind.__name__)
@quick
@given(data=st.data())
def test_every_message_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    message = data.draw(messages_of(kind))

    line = encode(message)
    back = decode(line)

    assert type(back) is kind
    # NaN differs from itself, so equality is asked of the text and of a representation that shows every type.
    assert encode(back) == line
    assert repr(back) == repr(message)
    assert line.isascii()
    assert "\n" not in line


def test_nan_and_infinity_are_spelled_out() -> None:
    event = events.BaselineCaseRun(
        figures=_figures(margin=math.nan, decision=[math.inf, "nan"]),
        noise={"logits": math.inf, "loss": -math.inf},
        randomness={},
    )

    data = json.loads(encode(event))

    assert data["figures"]["margin"] == "nan"
    assert data["noise"] == {"logits": "inf", "loss": "-inf"}
    assert data["figures"]["decision"] == [{"float": "inf"}, "nan"], "in free values a text stays a text"
    back = decode(encode(event))
    assert isinstance(back, events.BaselineCaseRun)
    assert math.isnan(back.figures.margin or 0.0)
    assert back.figures.decision == [math.inf, "nan"]


@pytest.mark.parametrize("value", [{"float": "nan"}, {"object": {"float": 1}}, {"object": 1}, {"float": 2.0}, {}])
def test_a_users_own_objects_are_not_taken_for_amptuis_spelling(value: object) -> None:
    event = events.BaselineCaseRun(figures=_figures(decision=value), noise={}, randomness={})

    assert decode(encode(event)) == event


def test_text_and_number_side_by_side_are_told_apart() -> None:
    told = [
        events.Proposal(name="x", value=value, reason="r", given=False) for value in ("nan", math.inf, 3, 3.0, None)
    ]
    event = events.CriteriaProposed(criteria=_criteria(), proposals=tuple(told))

    back = decode(encode(event))

    assert isinstance(back, events.CriteriaProposed)
    assert [repr(proposal.value) for proposal in back.proposals] == ["'nan'", "inf", "3", "3.0", "None"]


def test_nested_dataclasses_come_back_typed() -> None:
    policy = Policy(scaler=Scaler(init_scale=1024.0), fp32_regions=["a.b"])
    event = events.TrialStarted(trial=1, policy=policy, iterations=3, revision=1, attended=False)

    assert decode(encode(event)) == event


def test_unknown_fields_of_a_newer_version_are_ignored() -> None:
    data = json.loads(encode(events.Goodbye(why="done")))

    assert decode(json.dumps({**data, "mood": {"float": "good"}})) == events.Goodbye(why="done")


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UnknownKind, match="'Telepathy'"):
        decode('{"kind": "Telepathy"}')


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "no line of JSON"),
        ("[1]", "an object"),
        ("{}", "no kind"),
        ('{"kind": 3}', "no kind"),
        ('{"kind": "Goodbye"}', "why is missing"),
        ('{"kind": "Goodbye", "why": 3}', "why: '3' .int. where text"),
        ('{"kind": "StageStarted", "stage": "nap"}', "stage: 'nap'"),
        ('{"kind": "Progressed", "stage": "trial", "what": "", "done": 1.5, "total": 2}', "done: '1.5'"),
        ('{"kind": "Progressed", "stage": "trial", "what": "", "done": true, "total": 2}', "done: 'True'"),
        ('{"kind": "Progressed", "stage": "trial", "what": "", "done": NaN, "total": 2}', "NaN is not JSON"),
        ('{"kind": "Continue", "until": {"name": "norm", "value": "huge"}}', "until: value"),
        ('{"kind": "RunTrial", "policy": []}', "policy"),
        ('{"kind": "LockCriteria", "criteria": {"applied_share": 7}}', "applied_share"),
        ("[" * 100_000, "no line of JSON"),
        ('{"kind": "RunTrial", "policy": {"x": ' + "[" * 900 + "]" * 900 + "}}", "too deep|no line"),
        (b'{"kind": "Goodbye", "why": "\xff"}', "no line of JSON"),
    ],
)
def test_what_is_no_message_is_refused(line: str | bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        decode(line)


def test_a_value_that_is_not_plain_is_refused_where_it_is_written() -> None:
    for decision in (object(), {1: 2}, {"a"}, b"x"):
        with pytest.raises(ProtocolError, match="BaselineCaseRun cannot be written"):
            encode(events.BaselineCaseRun(figures=_figures(decision=decision), noise={}, randomness={}))


@quick
@given(st.binary(max_size=200))
def test_random_bytes_are_only_ever_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


def test_an_envelope_holds_place_and_time() -> None:
    event = events.Goodbye(why="done")

    envelope = decode_envelope(encode_envelope(7, 1700000000.25, encode(event)))

    assert (envelope.seq, envelope.time, envelope.event) == (7, 1700000000.25, event)
    with pytest.raises(ProtocolError, match="is a command"):
        decode_envelope(encode_envelope(7, 1.0, encode(commands.Close())))
    with pytest.raises(ProtocolError, match="no 'seq'"):
        decode_envelope("{}")


class TestFloats:
    def test_hold_float32_values_with_nan_and_infinity(self) -> None:
        series = Floats.of([0.5, math.nan, math.inf, -math.inf, 1e300, 0.1])

        assert len(series) == 6
        assert series[0] == 0.5
        assert math.isnan(series[1])
        assert list(series[2:5]) == [math.inf, -math.inf, math.inf]
        assert series[-1] == pytest.approx(0.1, rel=1e-7)
        assert series[-1] != 0.1, "rounded to float32"

    def test_are_equal_and_hash_by_content(self) -> None:
        assert Floats.of([1, math.nan]) == Floats.of([1, math.nan])
        assert hash(Floats.of([1, 2])) == hash(Floats.of([1, 2]))
        assert Floats.of([1, 2]) != Floats.of([1, 3])
        assert Floats.of([1, 2]) != (1.0, 2.0)
        assert Floats.of([1, 2])[1:] == Floats.of([2])
        assert not Floats()

    def test_can_be_pickled_and_copied_by_their_bytes(self) -> None:
        series = Floats.of([1, math.nan])

        assert pickle.loads(pickle.dumps(series)) == series
        assert Floats(series.tobytes()) == series
        with pytest.raises(ValueError, match="5 bytes"):
            Floats(b"12345")

    @pytest.mark.parametrize("packed", ['{"f32": "AAA="}', '{"f32": "!!!!"}', '{"f32": 3}', "{}", "[1.0]"])
    def test_damaged_ones_are_refused(self, packed: str) -> None:
        from amptui.protocol.typed import read_of

        with pytest.raises(ProtocolError):
            read_of(Floats)(json.loads(packed))


def test_every_other_json_spells_non_finite_numbers_too() -> None:
    finding = Finding(kind="overflow", severity="fault", stage="forward", facts={"largest": math.inf})

    text = to_json({"verdict": None, "z": [math.nan, -math.inf], "a": finding, "series": Floats.of([1, math.nan])})

    data = json.loads(text, parse_constant=pytest.fail)
    assert list(data) == ["verdict", "z", "a", "series"], "in the order given"
    assert data["z"] == ["nan", "-inf"]
    assert data["a"]["facts"] == {"largest": "inf"}
    assert data["series"] == [1.0, "nan"]
    assert "\x9b" not in to_json("\x9b31m"), "no control character reaches a terminal that shows the file"
    with pytest.raises(TypeError, match="object is no plain value"):
        to_json({"x": object()})


def _figures(**changed: object) -> object:
    from amptui.protocol.facts import CaseFigures

    return CaseFigures(case="c", index=0, tag="ordinary", outputs=(), **changed)


def _criteria() -> object:
    from amptui.project import Criteria

    return Criteria()
