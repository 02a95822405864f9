"""What is told of a run, in words."""

from dataclasses import replace

import pytest

from elasticjob.events import NodeState
from elasticjob.rendezvous.coordinator import announcements
from elasticjob.rendezvous.coordinator.sessions import Session
from elasticjob.rendezvous.coordinator.verdict import Detector, Loss
from elasticjob.rendezvous.protocol import Closed

CRASHED = Loss(detector=Detector.KEEP_ALIVE, reason="its keep-alives stopped")


def session(index: int = 0) -> Session:
    return Session(uid=f"uid-{index}", index=index, pod=f"digits-{index}-0", alive_until=0.0, pid=17)


def test_a_loss_names_node_pod_detector_and_silence() -> None:
    record = announcements.node_lost(session(2), CRASHED, silence=15.0)
    assert (record.name, record.node_state) == ("NodeLost", NodeState.FAILED)
    assert (record.index, record.pod, record.pid) == (2, "digits-2-0", 17)
    assert (record.detector, record.silence) == ("keep-alive", 15.0)
    assert record.message == "node 2 (digits-2-0): its keep-alives stopped (keep-alive)"


@pytest.mark.parametrize("gentle", [replace(CRASHED, planned=True), replace(CRASHED, detector=Detector.LEFT)])
def test_who_had_to_go_or_said_so_has_left_and_is_not_lost(gentle: Loss) -> None:
    record = announcements.node_lost(session(), gentle, silence=0.0)
    assert (record.name, record.node_state) == ("NodeLeft", NodeState.RUNNING)


def test_a_cause_names_three_lost_members_and_counts_the_others() -> None:
    sessions = {f"uid-{index}": session(index) for index in range(5)}
    losses = dict.fromkeys(sessions, CRASHED)
    three = announcements.cause_of_loss(list(sessions)[:3], losses, sessions)
    assert three.count("keep-alives stopped") == 3
    assert "more" not in three
    assert announcements.cause_of_loss(list(sessions), losses, sessions) == f"{three} and 2 more"


def test_a_lost_member_that_never_called_is_named_by_its_pod() -> None:
    assert announcements.cause_of_loss(["uid-9"], {"uid-9": CRASHED}, {}).startswith("pod uid-9: ")


@pytest.mark.parametrize(
    ("closed", "message", "node_state"),
    [
        (Closed(reason="Succeeded", message=""), "the run is closed: Succeeded", NodeState.SUCCEEDED),
        (Closed(reason="Failed", message="no budget"), "the run is closed: Failed: no budget", NodeState.FAILED),
    ],
)
def test_the_end_of_a_run_is_told_with_its_reason(closed: Closed, message: str, node_state: NodeState) -> None:
    record = announcements.run_closed(closed)
    assert (record.name, record.message, record.node_state) == ("RunClosed", message, node_state)
