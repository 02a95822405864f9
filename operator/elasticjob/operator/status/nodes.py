"""One entry for each node of the job, bounded.

A node is shown by its newest pod. What is told of a pod's end comes from the pod, what is told of a living one from the
rendezvous. Of more than `SHOWN` nodes those are shown that a person would look for; the counts are always exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from elasticjob.operator import constants
from elasticjob.operator.model import LastFailure, Ledger, NodeStatus
from elasticjob.operator.model.texts import shortened
from elasticjob.operator.observed import NodeEvent
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.pods import node_name
from elasticjob.operator.policies.pod_end import EndKind, PodEnd
from elasticjob.operator.situation import Situation, Stage

SHOWN = 200
"""So many nodes have an entry; ten thousand would outgrow what one object may hold."""

MESSAGE_LIMIT = 1024
"""Bytes that the message of an entry takes at most in the stored object."""

_STATES = (constants.NODE_FAILED, constants.NODE_INIT, constants.NODE_RUNNING, constants.NODE_SUCCEEDED)
"""In the order in which they are worth showing."""


@dataclass(frozen=True)
class NodeTable:
    """The shown nodes by index, and the exact number of nodes by state."""

    nodes: tuple[NodeStatus, ...]
    counts: Mapping[str, int]


def node_table(situation: Situation) -> NodeTable:
    """The nodes of the job. While it is suspended these are the ones whose pods are still there."""
    newest = {pod.index: pod for pod in situation.pods}
    indexes = situation.ledger.indexes
    if situation.stage is Stage.SUSPENDED:
        indexes = indexes & newest.keys()
    stopped = {index for index in indexes if _stopped_with_job(situation, index, newest.get(index))}
    states = {index: _state(situation, index, newest.get(index), stopped=index in stopped) for index in sorted(indexes)}
    before = {node.index: node for node in situation.before.nodes}
    ends = {one.index: one.end for one in situation.ends}
    nodes = (
        _node(
            situation,
            index,
            states[index],
            newest.get(index),
            before.get(index),
            ends.get(index),
            stopped=index in stopped,
        )
        for index in _shown(states, situation.ledger)
    )
    return NodeTable(nodes=tuple(nodes), counts=_counts(list(states.values())))


def _shown(states: Mapping[int, str], ledger: Ledger) -> list[int]:
    if len(states) <= SHOWN:
        return list(states)
    worth = sorted(states, key=lambda index: (_STATES.index(states[index]), ledger.ended.get(index, 0) == 0, index))
    return sorted(worth[:SHOWN])


def _counts(states: list[str]) -> dict[str, int]:
    return {
        "total": len(states),
        "init": states.count(constants.NODE_INIT),
        "running": states.count(constants.NODE_RUNNING),
        "succeeded": states.count(constants.NODE_SUCCEEDED),
        "failed": states.count(constants.NODE_FAILED),
        "omitted": max(0, len(states) - SHOWN),
    }


def _state(situation: Situation, index: int, pod: PodFacts | None, *, stopped: bool) -> str:
    """RUNNING in a round; FAILED or SUCCEEDED at its end; FAILED as long as a living node said so last; else INIT."""
    if index in situation.ledger.completed:
        return constants.NODE_SUCCEEDED
    if stopped:
        return _fate(situation)
    if pod is None:
        return constants.NODE_FAILED if situation.ledger.seen.get(index) else constants.NODE_INIT
    if pod.end is not None:
        return constants.NODE_SUCCEEDED if pod.end.kind is EndKind.SUCCEEDED else constants.NODE_FAILED
    if pod.uid in situation.members and (situation.formed or pod.uid not in situation.joined):
        return constants.NODE_RUNNING
    return constants.NODE_FAILED if _failed_alive(situation, pod) else constants.NODE_INIT


def _stopped_with_job(situation: Situation, index: int, pod: PodFacts | None) -> bool:
    """Whether the node still had a future when the job was over, and its pod goes or went with the job.

    That it goes, and with which exit code, may or may not be seen before it is gone: neither is told.
    """
    seen, ended = situation.ledger.seen.get(index, 0), situation.ledger.ended.get(index, 0)
    return situation.verdict is not None and seen > ended and (pod is None or pod.deleting)


def _fate(situation: Situation) -> str:
    """A node that is stopped with its job shares the fate of the job."""
    won = situation.verdict is not None and situation.verdict.succeeded
    return constants.NODE_SUCCEEDED if won else constants.NODE_FAILED


def _failed_alive(situation: Situation, pod: PodFacts) -> NodeEvent | None:
    event = situation.observed.node_events.get(pod.name)
    return event if event and event.state == constants.NODE_FAILED and pod.uid not in situation.joined else None


def _node(
    situation: Situation,
    index: int,
    state: str,
    pod: PodFacts | None,
    before: NodeStatus | None,
    end: PodEnd | None,
    *,
    stopped: bool,
) -> NodeStatus:
    rank, round_ = _place(situation, pod, before)
    details = _details_of_stopped(state, before) if stopped else _details(situation, state, pod, before, end)
    unchanged = before is not None and before.state == state
    return NodeStatus(
        name=node_name(situation.job.name, index),
        index=index,
        state=state,
        restarts=situation.ledger.ended.get(index, 0),
        pod=pod.name if pod else before.pod if before else "",
        pod_uid=pod.uid if pod else before.pod_uid if before else "",
        node=pod.node if pod else before.node if before else "",
        rank=rank,
        round=round_,
        reason=details.reason,
        message=shortened("; ".join(filter(None, (situation.rest(index), details.message))), MESSAGE_LIMIT),
        exit_code=details.exit_code,
        last_failure=_last_failure(pod, before, end or _visible_end(situation, pod)),
        last_transition_time=before.last_transition_time if before and unchanged else situation.stamp,
    )


def _place(situation: Situation, pod: PodFacts | None, before: NodeStatus | None) -> tuple[int | None, int | None]:
    """Rank and round, of now or as last known of the same pod."""
    member = situation.members.get(pod.uid) if pod else None
    if member is not None and situation.view is not None:
        return member.rank, situation.view.round
    same = before is not None and (pod is None or before.pod_uid == pod.uid)
    return (before.rank, before.round) if before and same else (None, None)


@dataclass(frozen=True)
class _Details:
    reason: str = ""
    message: str = ""
    exit_code: int | None = None


def _details(
    situation: Situation, state: str, pod: PodFacts | None, before: NodeStatus | None, end: PodEnd | None
) -> _Details:
    """Why the node is in its state. What was known of a pod that is gone stays as long as the state does."""
    ended = pod.end if pod else end
    if ended is not None:
        return _Details(ended.reason, ended.message, ended.exit_code)
    if pod is None:
        kept = before is not None and before.state == state
        if before and kept and state == constants.NODE_FAILED:
            # Not the stored message: what is said of a rest stands in it too.
            last = before.last_failure
            return _Details(last.reason, last.message, last.exit_code) if last else _Details()
        return _Details(before.reason, before.message, before.exit_code) if before and kept else _Details()
    event = _failed_alive(situation, pod)
    if state == constants.NODE_FAILED and event is not None:
        return _Details(event.reason, event.message)
    if state == constants.NODE_INIT and pod.obstacle is not None:
        return _Details(pod.obstacle.reason, pod.obstacle.message)
    if state == constants.NODE_INIT and situation.spec.spares and pod.uid in situation.spares:
        return _Details(constants.NODE_SPARE, "waits for a place")
    return _Details()


def _details_of_stopped(state: str, before: NodeStatus | None) -> _Details:
    """An end that was seen before the pod had to go stays known."""
    if before is not None and before.state == state and before.reason:
        return _Details(before.reason, before.message, before.exit_code)
    return _Details(constants.POD_JOB_FINISHED, "stopped, since the job is over")


def _visible_end(situation: Situation, pod: PodFacts | None) -> PodEnd | None:
    """An end that was counted before the node had an entry, e.g. since it belonged to the job only later."""
    return pod.end if pod is not None and situation.stage is Stage.ACTIVE else None


def _last_failure(pod: PodFacts | None, before: NodeStatus | None, end: PodEnd | None) -> LastFailure | None:
    if end is None or end.kind is EndKind.SUCCEEDED:
        return before.last_failure if before else None
    name = pod.name if pod else before.pod if before else ""
    return LastFailure(pod=name, reason=end.reason, message=end.message, exit_code=end.exit_code)
