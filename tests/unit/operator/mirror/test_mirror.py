import logging

import pytest

from elasticjob.events import NodeState, RdzvEvent, construct_and_record_rdzv_event
from elasticjob.operator.mirror.mirror import WINDOW, EventMirror
from elasticjob.operator.ports import Occurrence
from tests.unit.operator.fakes import FakeClock, job_reference

RUN = "job-uid"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def mirror(clock: FakeClock) -> EventMirror:
    mirror = EventMirror(clock=clock)
    mirror.follow(job_reference(RUN), pods=[])
    return mirror


def record(
    mirror: EventMirror,
    name: str,
    *,
    pod: str = "digits-0-0",
    message: str = "m",
    state: NodeState = NodeState.RUNNING,
    run: str = RUN,
    rank: int | None = None,
) -> None:
    event = RdzvEvent(name=name, run_id=run, message=message, hostname=pod, pid=1, node_state=state, rank=rank)
    write(mirror, event.serialize())


def write(mirror: EventMirror, text: object) -> None:
    mirror.handle(logging.makeLogRecord({"msg": text, "levelno": logging.INFO}))


def settled(mirror: EventMirror, clock: FakeClock) -> list[Occurrence]:
    clock.advance(WINDOW)
    return mirror.drain(clock.now())


def test_a_single_join_is_shown_with_its_pod(mirror: EventMirror, clock: FakeClock) -> None:
    record(mirror, "NodeJoined", message="digits-0-0 joined")
    assert mirror.drain(clock.now()) == []
    (shown,) = settled(mirror, clock)
    assert (shown.reason, shown.note, shown.warning) == ("NodeJoined", "digits-0-0 joined", False)
    assert shown.related is not None
    assert shown.related.name == "digits-0-0"


def test_many_joins_are_one_event_with_a_count(mirror: EventMirror, clock: FakeClock) -> None:
    for number in range(500):
        record(mirror, "NodeJoined", pod=f"digits-{number}-0")
    (shown,) = settled(mirror, clock)
    assert shown.reason == "NodesJoined"
    assert shown.note == "500 nodes joined: digits-0-0, digits-1-0, digits-2-0 and 497 more"


def test_a_round_is_told_after_the_joins_that_made_it(mirror: EventMirror, clock: FakeClock) -> None:
    record(mirror, "NodeJoined", pod="a")
    record(mirror, "NodeJoined", pod="b")
    record(mirror, "RoundFormed", message="round 1")
    assert [shown.reason for shown in mirror.drain(clock.now())] == ["NodesJoined", "RoundFormed"]


def test_a_lost_node_is_a_warning(mirror: EventMirror, clock: FakeClock) -> None:
    record(mirror, "NodeLost", state=NodeState.FAILED)
    (shown,) = settled(mirror, clock)
    assert shown.warning


@pytest.mark.parametrize(("state", "warning"), [(NodeState.SUCCEEDED, False), (NodeState.FAILED, True)])
def test_the_end_of_a_run_is_a_warning_only_if_it_failed(
    mirror: EventMirror, clock: FakeClock, state: NodeState, warning: bool
) -> None:
    record(mirror, "RunClosed", state=state)
    (shown,) = mirror.drain(clock.now())
    assert shown.warning is warning


def test_heartbeats_and_unknown_events_are_not_shown(mirror: EventMirror, clock: FakeClock) -> None:
    record(mirror, "dynamic_rendezvous.py:_keep_alive")
    record(mirror, "NodeHeartbeat")
    assert settled(mirror, clock) == []
    assert mirror.last_events(RUN) == {}


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "{}", '{"name": 3}', None, 7, b"\xff", '{"name":"NodeJoined","run_id":null}']
)
def test_what_is_no_rendezvous_event_is_ignored(mirror: EventMirror, clock: FakeClock, text: object) -> None:
    write(mirror, text)
    assert settled(mirror, clock) == []


def test_runs_that_are_not_followed_are_ignored(mirror: EventMirror, clock: FakeClock) -> None:
    record(mirror, "RoundFormed", run="another")
    mirror.forget(RUN)
    record(mirror, "RoundFormed")
    assert settled(mirror, clock) == []


def test_the_last_event_of_each_node_is_remembered(mirror: EventMirror) -> None:
    record(mirror, "NodeJoined", pod="a", rank=3)
    record(mirror, "WorkerFailed", pod="a", message="exit code 7", state=NodeState.FAILED)
    record(mirror, "NodeJoined", pod="b")
    last = mirror.last_events(RUN)
    assert (last["a"].reason, last["a"].message, last["a"].state) == ("WorkerFailed", "exit code 7", "FAILED")
    assert last["b"].reason == "NodeJoined"


def test_a_rank_is_remembered_but_is_no_event_of_its_own(mirror: EventMirror, clock: FakeClock) -> None:
    record(mirror, "NodeRanked", pod="digits-1-0", message="rank 1 of 2 in round 3", rank=1)
    assert settled(mirror, clock) == []
    assert mirror.last_events(RUN)["digits-1-0"].rank == 1


def test_a_refused_call_does_not_count_as_the_last_event_of_a_node(mirror: EventMirror) -> None:
    record(mirror, "NodeJoined", pod="a")
    record(mirror, "StaleCallRefused", pod="a")
    assert mirror.last_events(RUN)["a"].reason == "NodeJoined"


def test_events_of_pods_that_are_gone_are_forgotten(mirror: EventMirror) -> None:
    record(mirror, "NodeJoined", pod="a")
    record(mirror, "NodeJoined", pod="b")
    mirror.follow(job_reference(RUN), pods=["b"])
    assert list(mirror.last_events(RUN)) == ["b"]


def test_undrained_facts_are_bounded(mirror: EventMirror, clock: FakeClock) -> None:
    for number in range(5000):
        record(mirror, "RoundFormed", message=str(number))
    drained = mirror.drain(clock.now())
    assert len(drained) == 1000
    assert drained[-1].note == "4999"


def test_an_installed_mirror_gets_what_the_rendezvous_records(mirror: EventMirror, clock: FakeClock) -> None:
    mirror.install()
    try:
        construct_and_record_rdzv_event(run_id=RUN, message="round 1", node_state=NodeState.RUNNING, name="RoundFormed")
    finally:
        mirror.uninstall()
    assert [shown.reason for shown in mirror.drain(clock.now())] == ["RoundFormed"]
    construct_and_record_rdzv_event(run_id=RUN, message="round 2", node_state=NodeState.RUNNING, name="RoundFormed")
    assert mirror.drain(clock.now()) == []
