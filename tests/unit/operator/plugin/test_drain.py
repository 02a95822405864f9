"""Whom a drain concerns, and what is said about it."""

import pytest

from elasticjob.operator.plugin.drain import UnknownTargetError, eviction, leavers, outcome, refusal
from elasticjob.operator.plugin.job import Job
from tests.unit.operator.plugin.jobs import Body, condition, job, pod, running

PODS = [pod(0, machine="worker-a"), pod(1, machine="worker-b"), pod(2, machine="worker-a")]
DIGITS = Job(job(replicas=3, minReplicas=2, rendezvous={"lastCallTimeoutSeconds": 30}))


def names(target: str, pods: list[Body] = PODS, of: Job = DIGITS) -> list[str]:
    return [one.pod for one in leavers(of, pods, target)]


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("digits-1", ["digits-1-0"]),
        ("digits-1-0", ["digits-1-0"]),
        ("worker-b", ["digits-1-0"]),
        ("worker-a", ["digits-0-0", "digits-2-0"]),
    ],
)
def test_a_node_a_pod_or_a_machine_may_be_named(target: str, found: list[str]) -> None:
    assert names(target) == found


def test_a_machine_that_is_called_like_a_node_is_not_meant() -> None:
    assert names("digits-1", [pod(0, machine="digits-1"), pod(1)]) == ["digits-1-0"]


def test_only_the_newest_pod_of_a_node_is_meant() -> None:
    pods = [pod(0, deletionTimestamp="2030-01-01T14:00:00Z"), pod(0, attempt=1)]
    assert names("digits-0", pods) == ["digits-0-1"]


def test_a_pod_that_has_ended_cannot_be_drained() -> None:
    with pytest.raises(UnknownTargetError, match="It has digits-1"):
        names("digits-0", [pod(0, phase="Failed"), pod(1)])


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    expected = (
        "digits has no node, no pod and no machine 'digits-7'. It has digits-0 (pod digits-0-0 on machine worker-a), "
        "digits-1 (pod digits-1-0 on machine worker-b), digits-2 (pod digits-2-0 on machine worker-a)"
    )
    with pytest.raises(UnknownTargetError) as refused:
        names("digits-7")
    assert str(refused.value) == expected


def test_the_known_names_are_not_endless() -> None:
    with pytest.raises(UnknownTargetError, match=r"and 490 more$"):
        names("nobody", [pod(index) for index in range(500)])


def test_a_job_that_is_over_is_said_to_be_over() -> None:
    over = Job(running(conditions=[condition("Succeeded", "True", "AllNodesSucceeded")]))
    with pytest.raises(UnknownTargetError, match="digits is over: no pod of it runs"):
        names("digits-0", [], over)


def test_a_job_without_pods_has_nothing_to_drain() -> None:
    with pytest.raises(UnknownTargetError, match="there is nothing to drain"):
        names("digits-0", [])


def test_exactly_the_pod_that_was_seen_is_evicted() -> None:
    (leaver,) = leavers(DIGITS, PODS, "digits-1")
    assert eviction(leaver, "train") == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "digits-1-0", "namespace": "train"},
        "deleteOptions": {"preconditions": {"uid": "uid-1-0"}},
    }


def test_it_is_said_that_the_others_go_on() -> None:
    assert outcome(DIGITS, leavers(DIGITS, PODS, "digits-1")) == [
        "digits-1 (pod digits-1-0 on machine worker-b) has been asked to leave.",
        "The others go on as soon as its replacement joins from another machine, or without after 30 s of last call.",
        "Watch it: kubectl elasticjob status digits --watch",
    ]


def test_it_is_said_that_a_job_that_needs_all_nodes_pauses() -> None:
    rigid = Job(job(replicas=3, minReplicas=3))
    assert outcome(rigid, leavers(rigid, PODS, "worker-a"))[2] == (
        "Training pauses until their replacements join: the job needs 3 of its 3 nodes."
    )


def test_a_pod_that_leaves_already_is_said_to() -> None:
    pods = [pod(0, deletionTimestamp="2030-01-01T14:00:00Z"), pod(1)]
    assert outcome(DIGITS, leavers(DIGITS, pods, "digits-0"))[0] == (
        "digits-0 (pod digits-0-0 on machine worker-0) leaves already."
    )


def test_a_refusal_has_the_words_of_the_api_and_what_would_help() -> None:
    words = "Cannot evict pod as it would violate the pod's disruption budget."
    (leaver,) = leavers(DIGITS, PODS, "digits-1")
    assert refusal(DIGITS, leaver, words) == (
        f"digits-1 (pod digits-1-0 on machine worker-b) was not evicted: {words} The job keeps at least 2 of its 3 "
        "nodes: try again when all of them train, or lower spec.minReplicas."
    )
