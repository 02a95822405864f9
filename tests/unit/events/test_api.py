"""Events and their JSON form: exact for legal input, harmless for the rest."""

import json
import math
import threading
from collections import UserString
from dataclasses import asdict
from datetime import datetime, timezone
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.events.api import Event, EventSource, NodeState, RdzvEvent
from elasticjob.events.encoding import MAX_EVENT_CHARACTERS, MAX_TEXT_CHARACTERS
from tests.unit.examples import FEW

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
_integers = st.integers(-(2**63), 2**63 - 1)
_values = st.none() | st.booleans() | _integers | st.floats(allow_nan=False, allow_infinity=False) | _texts


def _event(**metadata: Any) -> Event:
    return Event(name="step", source=EventSource.WORKER, metadata=metadata)


def _written(event: Event) -> Any:
    """The metadata as a strict reader of UTF-8 JSON sees it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = event.serialize()
    assert "\n" not in text
    return json.loads(text.encode(), parse_constant=refuse)["metadata"]


def _rdzv_event(**changes: Any) -> RdzvEvent:
    fields: dict[str, Any] = {
        "name": "client.py:join",
        "run_id": "run",
        "message": "joined",
        "hostname": "demo-0",
        "pid": 1,
        "node_state": NodeState.RUNNING,
    }
    return RdzvEvent(**{**fields, **changes})


@FEW
@given(name=_texts, timestamp=_integers, source=st.sampled_from(EventSource), metadata=st.dictionaries(_texts, _values))
def test_a_legal_event_survives_the_round_trip_exactly(
    name: str, timestamp: int, source: EventSource, metadata: dict[str, Any]
) -> None:
    event = Event(name, source, timestamp, metadata)
    assert Event.deserialize(event.serialize()) == event


@FEW
@given(
    message=_texts,
    state=st.sampled_from(NodeState),
    pid=_integers,
    rank=st.none() | _integers,
    local_id=st.none() | _integers,
    trace=_texts,
)
def test_a_legal_rendezvous_event_survives_the_round_trip_exactly(
    message: str, state: NodeState, pid: int, rank: int | None, local_id: int | None, trace: str
) -> None:
    event = _rdzv_event(message=message, node_state=state, pid=pid, rank=rank, local_id=local_id, error_trace=trace)
    assert RdzvEvent.deserialize(event.serialize()) == event


def test_the_json_of_a_legal_event_is_the_one_that_torch_writes() -> None:
    event, rdzv_event = _event(worker_id=7, loss=0.5, ok=True, note=None), _rdzv_event(rank=3)
    assert str(event) == event.serialize() == json.dumps(asdict(event))
    assert str(rdzv_event) == rdzv_event.serialize() == json.dumps(asdict(rdzv_event))


def test_zeros_are_kept() -> None:
    event = RdzvEvent.deserialize(_rdzv_event(rank=0, local_id=0, pid=0).serialize())
    assert (event.rank, event.local_id, event.pid) == (0, 0, 0)


class _Scalar:
    """Like the scalars of numeric libraries: a number to people, an object to JSON."""

    def __str__(self) -> str:
        return "3"


class _Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class _Level(IntEnum):
    HIGH = 3


class _Float(float):
    def __repr__(self) -> str:
        return f"_Float({float(self)})"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\x00a", "b'\\x00a'"),
        ({1}, "{1}"),
        (datetime(2024, 1, 2, tzinfo=timezone.utc), "2024-01-02 00:00:00+00:00"),
        (ValueError("bad"), "bad"),
        (_Scalar(), "3"),
        (_Level.HIGH, 3),
        (_Float(0.5), 0.5),
        (UserString("text"), "text"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (_Broken(), "<_Broken without a text form>"),
        ({"deep": {"er": [1, (2, b"3")]}}, {"deep": {"er": [1, [2, "b'3'"]]}}),
        ({2: "a", None: "b", True: "c", b"k": "d"}, {"2": "a", "null": "b", "true": "c", "b'k'": "d"}),
        (EventSource.AGENT, "AGENT"),
        (10**300, 10**300),
    ],
)
def test_a_value_that_json_cannot_carry_becomes_its_text_form(value: object, expected: object) -> None:
    assert _written(_event(value=value)) == {"value": expected}


def test_a_number_of_absurd_size_does_not_fail() -> None:
    assert isinstance(_written(_event(value=10**6000))["value"], str)


def test_a_value_that_cannot_be_copied_does_not_fail() -> None:
    assert "lock" in _written(_event(value=threading.Lock()))["value"]


def test_a_value_that_contains_itself_does_not_fail() -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    assert _written(_event(value=cycle))


def test_text_with_lone_surrogates_becomes_valid_utf_8() -> None:
    message = json.loads(_rdzv_event(message="loss=∞ é 训练 \ud800").serialize())["message"]
    assert message.encode().decode() == "loss=∞ é 训练 \\ud800"


def test_a_huge_text_is_cut_in_the_middle_and_marked() -> None:
    text = "begin" + "x" * 5_000_000 + "end"
    written = _written(_event(value=text))["value"]
    assert len(written) < MAX_TEXT_CHARACTERS + 100
    assert written.startswith("begin")
    assert written.endswith("end")
    assert "characters cut" in written


def test_a_huge_collection_is_cut_and_marked() -> None:
    text = _event(value=["y" * 1000] * 100_000, later={str(n): n for n in range(100_000)}).serialize()
    assert len(text) < MAX_EVENT_CHARACTERS * 1.2
    assert "items cut" in json.loads(text)["metadata"]["value"][-1]


def test_long_fields_do_not_displace_the_short_ones() -> None:
    event = _rdzv_event(name="n" * 10**6, run_id="r" * 10**6, message="m" * 10**6, hostname="h" * 10**6, rank=3)
    written = RdzvEvent.deserialize(event.serialize())
    assert (written.node_state, written.rank, written.pid) == (NodeState.RUNNING, 3, 1)


def test_bad_values_in_any_field_do_not_fail() -> None:
    event = _rdzv_event(name=None, run_id=b"x", message=object(), pid="one", node_state=3, rank=math.nan)
    assert json.loads(str(event))["rank"] == "nan"


def test_fields_that_other_versions_add_are_ignored() -> None:
    event = Event.deserialize('{"name": "a", "source": "AGENT", "colour": "red"}')
    assert event == Event("a", EventSource.AGENT, 0, {})


def test_missing_optional_fields_get_their_defaults() -> None:
    text = '{"name":"n","run_id":"r","message":"m","hostname":"h","pid":0,"node_state":"INIT"}'
    assert RdzvEvent.deserialize(text) == RdzvEvent("n", "r", "m", "h", 0, NodeState.INIT)


def test_an_event_is_returned_as_it_is() -> None:
    event, rdzv_event = _event(), _rdzv_event()
    assert Event.deserialize(event) is event
    assert RdzvEvent.deserialize(rdzv_event) is rdzv_event


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ('{"source": "AGENT"}', ValueError, "name"),
        ('{"name": "a"}', ValueError, "source"),
        ('{"name": "a", "source": "TRAINER"}', ValueError, "AGENT, WORKER"),
        ('{"name": "a", "source": null}', ValueError, "source"),
        ('{"name": 3, "source": "AGENT"}', ValueError, "name"),
        ('{"name": "a", "source": "AGENT", "timestamp": true}', ValueError, "timestamp"),
        ('{"name": "a", "source": "AGENT", "metadata": null}', ValueError, "metadata"),
        ("{", ValueError, "JSON"),
        ("[" * 100_000, ValueError, "JSON"),
        ("[]", ValueError, "object"),
        ("", ValueError, "JSON"),
        (b"{}", TypeError, "bytes"),
        (None, TypeError, "NoneType"),
        (_rdzv_event(), TypeError, "RdzvEvent"),
    ],
)
def test_bad_input_is_refused_by_name(data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Event.deserialize(data)


def test_an_unknown_node_state_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"node_state cannot be 'LOST'; known are INIT, RUNNING, SUCCEEDED, FAILED"):
        RdzvEvent.deserialize(_rdzv_event().serialize().replace("RUNNING", "LOST"))
