"""Events as a list."""

from typing import Any

from elasticjob.operator.plugin.events import event_lines
from elasticjob.operator.plugin.text import Style
from tests.unit.operator.plugin.jobs import NOW


def event(reason: str, message: str, *, uid: str = "uid-1", **more: Any) -> dict[str, Any]:
    return {"involvedObject": {"uid": uid}, "type": "Normal", "reason": reason, "message": message, **more}


def lines(*events: dict[str, Any]) -> list[str]:
    return event_lines(events, job_uid="uid-1", now=NOW, style=Style())


def test_events_of_both_groups_are_listed_in_order_of_time_with_their_counts() -> None:
    series = {"count": 7, "lastObservedTime": "2030-01-01T14:09:00.000000Z"}
    assert lines(
        event("RoundFormed", "round 2", eventTime="2030-01-01T14:06:00.500000Z"),
        event("NodeLost", "digits-0: Killed", eventTime="2030-01-01T14:05:00.1Z", series=series, type="Warning"),
        event("Old", "core", firstTimestamp="2029-12-31T09:00:00Z", lastTimestamp="2029-12-31T10:00:00Z", count=2),
    ) == [
        "FIRST                 LAST                  COUNT  REASON       MESSAGE",
        "2029-12-31 09:00:00Z  2029-12-31 10:00:00Z  x2     Old          core",
        "14:05:00Z             14:09:00Z             x7     NodeLost     digits-0: Killed",
        "14:06:00Z                                          RoundFormed  round 2",
    ]


def test_events_of_an_earlier_job_of_the_name_are_left_out() -> None:
    assert lines(event("JobStarted", "before", uid="uid-0")) == [
        "No Events: the cluster keeps them for an hour by default."
    ]


def test_an_event_without_any_time_comes_first() -> None:
    assert "Odd" in lines(event("New", "", eventTime="2030-01-01T14:06:00Z"), event("Odd", ""))[1]
