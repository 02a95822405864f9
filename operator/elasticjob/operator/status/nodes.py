"""One entry for each node of the job, bounded.

A node is shown by its newest pod. What is told of a pod's end comes from the pod, what is told of a living one from the
rendezvous. Of more than `SHOWN` nodes those are shown that a person would look for; the counts are always exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elasticjob.operator import constants
from elasticjob.operator.model import LastFailure, Ledger, NodeStatus
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.pods import node_name
from elasticjob.operator.policies.pod_end import EndKind, PodEnd
from elasticjob.operator.situation import Situation, Stage
from elasticjob.rendezvous.orders import RunState

SHOWN = 200
"""So many nodes have an entry; ten thousand would outgrow what one object may hold."""

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
    before = {node.index: node for node in situation.before.nodes}
    ends = {one.index: one.end for one in situation.ends}
    nodes = [
        _node(situation, index, newest.get(index), before.get(index), ends.get(index)) for index in sorted(indexes)
    ]
    shown = nodes if len(nodes) <= SHOWN else sorted(nodes, key=_worth)[:SHOWN]
    return NodeTable(nodes=tuple(sorted(shown, key=lambda node: node.index)), counts=_counts(nodes))


def _worth(node: NodeStatus) -> tuple[int, bool, int]:
    return (_STATES.index(node.state), node.restarts == 0, node.index)


def _counts(nodes: list[NodeStatus]) -> dict[str, int]:
    states = [node.state for node in nodes]
    return {
        "total": len(nodes),
        "init": states.count(constants.NODE_INIT),
        "running": states.count(constants.NODE_RUNNING),
        "succeeded": states.count(constants.NODE_SUCCEEDED),
        "failed": states.count(constants.NODE_FAILED),
        "omitted": max(0, len(nodes) - SHOWN),
    }


def _node(
    situation: Situation, index: int, pod: PodFacts | None, before: NodeStatus | None, end: PodEnd | None
) -> NodeStatus:
    base = NodeStatus(
        name=node_name(situation.job.name, index),
        index=index,
        state=constants.NODE_INIT,
        restarts=situation.ledger.ended.get(index, 0),
    )
    node = _without_pod(situation, base, before, end) if pod is None else _with_pod(situation, base, pod, before)
    failure = _last_failure(pod, before, end)
    same = before is not None and before.state == node.state
    stamp = before.last_transition_time if before and same else situation.stamp
    return replace(node, last_failure=failure, last_transition_time=stamp)


def _last_failure(pod: PodFacts | None, before: NodeStatus | None, end: PodEnd | None) -> LastFailure | None:
    if end is None or end.kind is EndKind.SUCCEEDED:
        return before.last_failure if before else None
    name = pod.name if pod else before.pod if before else ""
    return LastFailure(pod=name, reason=end.reason, message=end.message, exit_code=end.exit_code)


def _with_pod(situation: Situation, base: NodeStatus, pod: PodFacts, before: NodeStatus | None) -> NodeStatus:
    member = situation.members.get(pod.uid)
    known = before if before and before.pod_uid == pod.uid else None
    rank, round_ = (known.rank, known.round) if known else (None, None)
    if member is not None and situation.view is not None:
        rank, round_ = member.rank, situation.view.round
    node = replace(base, pod=pod.name, pod_uid=pod.uid, node=pod.node, rank=rank, round=round_)
    if base.index in situation.ledger.completed:
        return _ended(node, constants.NODE_SUCCEEDED, pod.end)
    if pod.end is not None:
        state = constants.NODE_SUCCEEDED if pod.end.kind is EndKind.SUCCEEDED else constants.NODE_FAILED
        return _ended(node, state, pod.end)
    return _living(situation, node, pod)


def _ended(node: NodeStatus, state: str, end: PodEnd | None) -> NodeStatus:
    if end is None:
        return replace(node, state=state)
    return replace(node, state=state, reason=end.reason, message=end.message, exit_code=end.exit_code)


def _living(situation: Situation, node: NodeStatus, pod: PodFacts) -> NodeStatus:
    """A node whose pod lives: RUNNING in a round, FAILED while its last word was that it failed, else INIT."""
    if pod.uid in situation.members and not _waits_anew(situation, pod.uid):
        return replace(node, state=constants.NODE_RUNNING)
    event = situation.observed.node_events.get(pod.name)
    if event is not None and event.state == constants.NODE_FAILED and pod.uid not in situation.joined:
        return replace(node, state=constants.NODE_FAILED, reason=event.reason, message=event.message)
    if pod.obstacle is not None:
        return replace(node, reason=pod.obstacle.reason, message=pod.obstacle.message)
    return node


def _waits_anew(situation: Situation, uid: str) -> bool:
    view = situation.view
    return view is not None and view.state is not RunState.FORMED and uid in situation.joined


def _without_pod(situation: Situation, base: NodeStatus, before: NodeStatus | None, end: PodEnd | None) -> NodeStatus:
    """A node whose pod is gone or not there yet. What was known of the last one stays."""
    ledger = situation.ledger
    state = _state_without_pod(situation, ledger, base.index)
    if before is None:
        return replace(base, state=state)
    kept = replace(before, state=state, restarts=base.restarts)
    if end is not None:
        return _ended(kept, state, end)
    return kept if state == before.state else replace(kept, reason="", message="", exit_code=None)


def _state_without_pod(situation: Situation, ledger: Ledger, index: int) -> str:
    if index in ledger.completed:
        return constants.NODE_SUCCEEDED
    seen, ended = ledger.seen.get(index, 0), ledger.ended.get(index, 0)
    if seen == 0:
        return constants.NODE_INIT
    if situation.verdict is not None and seen > ended:
        return constants.NODE_SUCCEEDED if situation.verdict.succeeded else constants.NODE_FAILED
    return constants.NODE_FAILED
