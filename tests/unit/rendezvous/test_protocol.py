"""The wire types: what goes out comes back, and nothing else gets in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.rendezvous.protocol import (
    MAX_MESSAGE,
    MAX_ROUND,
    Closed,
    Endpoint,
    EndpointRequest,
    ErrorCode,
    Failure,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinFormed,
    JoinRequest,
    JoinWaiting,
    LeaveOutcome,
    LeaveRequest,
    Member,
    ProtocolError,
    dumps,
    join_answer_from_json,
    loads,
    parse,
    shorten,
)
from tests.unit.examples import FEW

MEMBERS = tuple(Member(rank=rank, index=rank, pod=f"digits-{rank}-0", address="10.0.0.1") for rank in range(2))
EXAMPLES: list[tuple[Any, Any]] = [
    (
        JoinRequest(incarnation="a", address="fd00::1", pid=7, round=3, failure=Failure(exit_code=-9)),
        JoinRequest.from_json,
    ),
    (JoinFormed(round=2, rank=1, members=MEMBERS), join_answer_from_json),
    (JoinWaiting(joined=1, expected=2, min_nodes=1, deadline_seconds=2.5, message="…"), join_answer_from_json),
    (JoinWaiting(joined=0, expected=0, min_nodes=1), join_answer_from_json),
    (HeartbeatRequest(incarnation="a", round=1, endpoint=Endpoint(address="x", port=1)), HeartbeatRequest.from_json),
    (HeartbeatAnswer(round=1, waiting=2, closed=Closed(reason="Failed"), evicted=True), HeartbeatAnswer.from_json),
    (EndpointRequest(incarnation="a", endpoint=Endpoint(address="x", port=65535)), EndpointRequest.from_json),
    (LeaveRequest(incarnation="a", round=0, outcome=LeaveOutcome.FAILED, exit_code=1), LeaveRequest.from_json),
]


@pytest.mark.parametrize(("value", "reader"), EXAMPLES)
def test_what_is_sent_is_what_is_read(value: Any, reader: Any) -> None:
    assert parse(dumps(value.to_json()), reader) == value


@pytest.mark.parametrize(("value", "reader"), EXAMPLES)
def test_fields_of_a_newer_version_are_ignored(value: Any, reader: Any) -> None:
    assert parse(dumps({**value.to_json(), "newer": [1]}), reader) == value


def test_refusals_travel_with_their_reason() -> None:
    sent = ProtocolError(ErrorCode.CLOSED, "over", closed=Closed(reason="Succeeded", message="done"))
    read = ProtocolError.from_json(loads(dumps(sent.to_json())))
    assert (read.code, read.message, read.closed) == (sent.code, sent.message, sent.closed)


def test_every_code_has_a_status_and_only_passing_ones_are_retried() -> None:
    assert {code.http_status for code in ErrorCode} == {400, 401, 403, 404, 408, 409, 410, 413, 426, 429, 503}
    assert {code.value for code in ErrorCode if code.retryable} == {
        "unknown-run",
        "unknown-node",
        "request-timeout",
        "not-ready",
        "overloaded",
    }


GOOD_JOIN = {"incarnation": "a", "address": "10.0.0.1", "pid": 1, "round": 0, "failure": None, "wait": 20}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("incarnation", ""),
        ("incarnation", "x" * 65),
        ("incarnation", None),
        ("incarnation", "a\nb"),
        ("address", ""),
        ("address", "x" * 254),
        ("address", "a\x00"),
        ("pid", -1),
        ("pid", "1"),
        ("pid", True),
        ("pid", 1.0),
        ("pid", 2**31),
        ("round", -1),
        ("round", MAX_ROUND + 1),
        ("round", None),
        ("wait", -0.1),
        ("wait", 30.5),
        ("wait", "20"),
        ("wait", True),
        ("failure", []),
        ("failure", {}),
        ("failure", {"exitCode": 2**31}),
        ("failure", {"exitCode": 1, "message": "x" * (MAX_MESSAGE + 1)}),
        ("failure", {"exitCode": 1, "message": "\ud800"}),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises(ProtocolError) as refused:
        JoinRequest.from_json({**GOOD_JOIN, field: value})
    assert refused.value.code is ErrorCode.INVALID
    assert (field if not isinstance(value, dict) else "") in refused.value.message


@pytest.mark.parametrize(
    "members",
    [
        None,
        [{"rank": 1, "index": 0, "pod": "a", "address": "b"}],
        [{"rank": 0, "index": 0, "pod": "a", "address": "b"}] * 2,
        [],
    ],
)
def test_a_round_whose_ranks_are_not_0_to_n_is_refused(members: object) -> None:
    answer = {"state": "formed", "round": 1, "rank": 0, "worldSize": 1, "members": members}
    with pytest.raises(ProtocolError):
        join_answer_from_json(answer)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"NaN",
        b'{"a": Infinity}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"9" * 10_000,
        b"\xef\xbb\xbf{}",
    ],
)
def test_whatever_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError) as refused:
        parse(body, JoinRequest.from_json)
    assert refused.value.code is ErrorCode.INVALID


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=10,
)
READERS = [reader for _, reader in EXAMPLES] + [ProtocolError.from_json]


def code_of(reader: Any, value: object) -> ErrorCode | None:
    """How reading ends: None if the value is good."""
    try:
        reader(value)
    except ProtocolError as refused:
        return refused.code
    return None


@FEW
@given(value=JSON, reader=st.sampled_from(READERS))
def test_no_json_value_makes_a_reader_fail_otherwise(value: object, reader: Any) -> None:
    assert code_of(reader, value) in (None, ErrorCode.INVALID)


@FEW
@given(value=JSON, example=st.sampled_from(EXAMPLES), data=st.data())
def test_no_value_of_a_field_makes_a_reader_fail_otherwise(value: object, example: Any, data: st.DataObject) -> None:
    good, reader = example
    document = good.to_json()
    document[data.draw(st.sampled_from(sorted(document)))] = value
    assert code_of(reader, document) in (None, ErrorCode.INVALID)


@FEW
@given(body=st.binary(max_size=200))
def test_no_bytes_make_a_reader_fail_otherwise(body: bytes) -> None:
    with pytest.raises(ProtocolError) as refused:
        parse(body, JoinRequest.from_json)
    assert refused.value.code is ErrorCode.INVALID


@FEW
@given(text=st.text(st.characters(), max_size=3000))
def test_a_shortened_message_always_fits(text: str) -> None:
    request = LeaveRequest(incarnation="a", round=0, outcome=LeaveOutcome.LEFT, message=shorten(text))
    assert parse(dumps(request.to_json()), LeaveRequest.from_json) == request


def test_the_longest_times_that_a_job_may_order_can_be_told() -> None:
    longest = 2.0**31 - 1
    beat = HeartbeatAnswer(round=1, interval_seconds=longest)
    assert HeartbeatAnswer.from_json(beat.to_json()) == beat
    waiting = JoinWaiting(joined=1, expected=2, min_nodes=2, deadline_seconds=2 * longest)
    assert join_answer_from_json(waiting.to_json()) == waiting
