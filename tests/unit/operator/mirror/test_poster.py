import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from elasticjob.operator.errors import ClusterError, Forbidden, Invalid, NotFound, TooManyRequests, Unavailable
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.mirror.poster import QUEUE_LIMIT, WRITE_PAUSE, EventsPoster
from elasticjob.operator.ports import Body, ObjectReference
from elasticjob.operator.resources import EVENTS
from tests.unit.operator.fakes import Call, FakeClock, ScriptedCluster, occurrence


@pytest.fixture
def cluster() -> ScriptedCluster:
    return ScriptedCluster()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the poster made, none of them real."""
    pauses: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses


@pytest.fixture
def poster(cluster: ScriptedCluster, metrics: Metrics, slept: list[float]) -> EventsPoster:
    return EventsPoster(cluster=cluster, clock=FakeClock(), instance="pod-1", metrics=metrics)


@contextlib.asynccontextmanager
async def running(poster: EventsPoster) -> AsyncIterator[None]:
    task = asyncio.create_task(poster.run())
    try:
        yield
        for _ in range(200):
            await asyncio.tasks.sleep(0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def dropped(metrics: Metrics, kind: str, cause: str) -> float:
    value = metrics.registry.get_sample_value("elasticjob_events_dropped_total", {"type": kind, "cause": cause})
    return value or 0.0


async def test_what_is_emitted_is_written(poster: EventsPoster, cluster: ScriptedCluster) -> None:
    async with running(poster):
        poster.emit(occurrence("Scaled"))
    assert [call.body["reason"] for call in cluster.made("create", EVENTS) if call.body] == ["Scaled"]


async def test_what_was_emitted_before_the_poster_ran_is_written(
    poster: EventsPoster, cluster: ScriptedCluster
) -> None:
    poster.emit(occurrence())
    async with running(poster):
        pass
    assert len(cluster.calls) == 1


async def test_warnings_are_written_first(poster: EventsPoster, cluster: ScriptedCluster) -> None:
    for number in range(5):
        poster.emit(occurrence(note=str(number)))
    poster.emit(occurrence("JobFailed", warning=True))
    async with running(poster):
        pass
    assert cluster.calls[0].body is not None
    assert cluster.calls[0].body["reason"] == "JobFailed"


async def test_a_full_queue_drops_normal_events_and_counts_them(
    poster: EventsPoster, cluster: ScriptedCluster, metrics: Metrics
) -> None:
    poster.emit(occurrence("JobFailed", warning=True))
    for number in range(QUEUE_LIMIT + 10):
        poster.emit(occurrence(note=str(number)))
    assert dropped(metrics, "Normal", "queue-full") == 11
    async with running(poster):
        pass
    assert cluster.calls[0].body is not None
    assert cluster.calls[0].body["reason"] == "JobFailed"


async def test_a_server_that_asks_to_slow_down_is_obeyed(
    poster: EventsPoster, cluster: ScriptedCluster, slept: list[float]
) -> None:
    answers = iter([TooManyRequests("slow down", retry_after=7)])

    def answer(_: Call) -> Body:
        for error in answers:
            raise error
        return {}

    cluster.answer = answer
    async with running(poster):
        poster.emit(occurrence())
    assert len(cluster.calls) == 2
    assert 7 in slept


async def test_a_server_that_does_not_answer_is_tried_a_few_times(
    poster: EventsPoster, cluster: ScriptedCluster, metrics: Metrics
) -> None:
    def answer(_: Call) -> Body:
        raise Unavailable("gone")

    cluster.answer = answer
    async with running(poster):
        poster.emit(occurrence())
    assert len(cluster.calls) == 4
    assert dropped(metrics, "Normal", "Unavailable") == 1


REFUSALS = {
    "no permission": Forbidden("events is forbidden"),
    "namespace ends": Forbidden("unable to create new content in namespace train because it is being terminated"),
    "not valid": Invalid("Event is invalid: note"),
}


@pytest.mark.parametrize("error", REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_refusal_drops_the_one_event_without_delay_and_is_logged_once(
    error: ClusterError,
    poster: EventsPoster,
    cluster: ScriptedCluster,
    metrics: Metrics,
    slept: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(_: Call) -> Body:
        raise error

    cluster.answer = answer
    async with running(poster):
        poster.emit(occurrence(note="a"))
        poster.emit(occurrence(note="b"))
    assert len(cluster.calls) == 2
    assert set(slept) <= {WRITE_PAUSE}
    assert dropped(metrics, "Normal", type(error).__name__) == 2
    assert [record.getMessage() for record in caplog.records] == [f"an Event was not written: {error}"]


async def test_a_series_whose_event_has_expired_begins_anew(poster: EventsPoster, cluster: ScriptedCluster) -> None:
    def answer(call: Call) -> Body:
        if call.verb == "patch":
            raise NotFound("no such event")
        return {}

    cluster.answer = answer
    async with running(poster):
        for _ in range(3):
            poster.emit(occurrence())
    assert [call.verb for call in cluster.calls] == ["create", "patch", "create"]


async def test_nothing_that_was_queued_is_written_after_leadership_ended(
    poster: EventsPoster, cluster: ScriptedCluster, metrics: Metrics
) -> None:
    poster.emit(occurrence())
    poster.clear()
    async with running(poster):
        pass
    assert cluster.calls == []
    assert dropped(metrics, "Normal", "not-leader") == 1


async def test_what_is_told_as_an_event_is_in_the_log_with_its_job_and_pod(
    poster: EventsPoster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "elasticjob")
    pod = ObjectReference(api_version="v1", kind="Pod", namespace="train", name="digits-1-0", uid="")
    async with running(poster):
        poster.emit(replace(occurrence(reason="NodeLost", note="silent for 15 s", warning=True), related=pod))
    (record,) = caplog.records
    regarding = occurrence().regarding
    assert record.getMessage() == "silent for 15 s"
    fields = {name: record.__dict__[name] for name in ("job", "reason", "type", "node", "pod")}
    assert fields == {
        "job": f"{regarding.namespace}/{regarding.name}",
        "reason": "NodeLost",
        "type": "Warning",
        "node": "digits-1",
        "pod": "digits-1-0",
    }
