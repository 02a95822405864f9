"""Counting in the audit log of an API server."""

import json
from typing import Any

import pytest

from tests.bench.audit import Call, count_by_kind, most_in_a_second, read, seconds_to_create, writes


def line(verb: str, resource: str, *, user: str = "ours", at: float = 0.0, took: float = 0.0, **more: Any) -> str:
    target = {"resource": resource, "namespace": "train", **more.pop("target", {})}
    entry = {
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": user},
        "objectRef": target,
        "responseStatus": {"code": more.pop("code", 200)},
        "requestReceivedTimestamp": stamp(at),
        "stageTimestamp": stamp(at + took),
        **more,
    }
    return json.dumps(entry) + "\n"


def stamp(seconds: float) -> str:
    return f"2030-01-01T12:00:{seconds:09.6f}Z"


def calls(*lines: str) -> list[Call]:
    return list(read(lines))


def test_a_call_has_its_user_target_outcome_and_times() -> None:
    target = {"name": "digits", "subresource": "status"}
    (call,) = calls(line("update", "elasticjobs", at=1.25, took=0.5, code=409, target=target))
    assert (call.user, call.kind, call.namespace, call.name) == ("ours", "update elasticjobs/status", "train", "digits")
    assert (call.code, call.succeeded) == (409, False)
    assert call.answered - call.received == pytest.approx(0.5)


def test_a_line_that_is_being_written_ends_the_reading() -> None:
    assert [call.verb for call in calls(line("get", "pods"), '{"stage": "Resp')] == ["get"]


def test_watches_that_begin_and_calls_without_an_object_are_no_calls() -> None:
    begun = line("watch", "pods", stage="ResponseStarted")
    healthy = json.dumps({"stage": "ResponseComplete", "verb": "get", "requestURI": "/readyz"}) + "\n"
    assert calls(begun, healthy) == []


def test_writes_are_those_of_one_user_refused_ones_too_and_no_reviews() -> None:
    found = calls(
        line("create", "pods", code=201),
        line("create", "pods", code=403),
        line("patch", "events"),
        line("list", "pods"),
        line("create", "tokenreviews", code=201),
        line("create", "pods", user="theirs", code=201),
    )
    assert count_by_kind(writes(found, "ours")) == {"create pods": 2, "patch events": 1}


def test_the_time_to_create_runs_until_the_last_pod_was_created() -> None:
    found = calls(
        line("create", "elasticjobs", user="player", at=1.0, took=0.3, code=201, target={"name": "big"}),
        line("create", "pods", at=2.0, took=0.5, code=201),
        line("create", "pods", at=2.2, took=0.1, code=409),
        line("create", "pods", at=3.0, took=0.5, code=201),
        line("create", "serviceaccounts", user="player", at=9.0, code=201, target={"subresource": "token"}),
    )
    assert seconds_to_create(found, job="big", resource="elasticjobs", pods=2) == pytest.approx(2.5)


def test_pods_that_are_missing_are_told() -> None:
    found = calls(line("create", "elasticjobs", code=201, target={"name": "big"}), line("create", "pods", code=201))
    with pytest.raises(ValueError, match="1 of 2 pods"):
        seconds_to_create(found, job="big", resource="elasticjobs", pods=2)


def test_the_most_in_a_second_is_counted_over_any_second() -> None:
    found = calls(*(line("update", "elasticjobs", at=moment) for moment in (0.0, 0.9, 1.1, 1.2, 5.0)))
    assert most_in_a_second(found) == 3
    assert most_in_a_second([]) == 0
