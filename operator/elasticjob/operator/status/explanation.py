"""Why the job does not train on all its nodes, in one message that joins rendezvous and cluster.

`1 of 2 joined (min 2). digits-1 is Pending since 2030-01-01T14:03:02Z: 0/2 nodes are available: 2 Insufficient cpu.
No round can form as things are: 2 needed, and only 1 node can come. Fails at 14:05:10Z (startupDeadlineSeconds).`

Nothing in it changes by time alone but what `silence` tells once, so that a job that waits costs no write.
"""

from collections.abc import Mapping
from datetime import datetime

from elasticjob.operator import constants
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.pods import node_name
from elasticjob.operator.policies.obstacles import Obstacle, joined_messages, refusals
from elasticjob.operator.situation import Situation
from elasticjob.operator.status.deadline import clock, outlook
from elasticjob.operator.status.silence import running_since, silence


def obstacles(situation: Situation) -> tuple[Obstacle, ...]:
    """All that is known to be in the way: the state, silence, refused calls, then pods that cannot start, by index."""
    blocked = (
        Obstacle(reason=pod.obstacle.reason, message=f"{node_name(situation.job.name, index)} {pod.obstacle.message}")
        for index, pod in sorted(situation.current.items())
        if pod.obstacle is not None and pod.uid not in situation.joined and index in situation.ledger.indexes
    )
    silent = silence(situation)
    return (*unserved(situation), *((silent,) if silent else ()), *refusals(situation.problems), *blocked)


def unserved(situation: Situation) -> tuple[Obstacle, ...]:
    """Why the rendezvous does not serve the run, if it told."""
    heard = situation.heard
    if heard is None or heard.taken_over or "storeError" not in heard.details:
        return ()
    message = f"the state of the rendezvous cannot be read: {heard.details['storeError']}"
    return (Obstacle(reason=constants.REASON_NOT_SERVED, message=message),)


def explain(situation: Situation) -> str:
    """How many have joined, what the others are doing, and how long they may take."""
    spec = situation.spec
    head = f"{len(situation.joined)} of {situation.wanted} joined (min {spec.min_nodes})."
    rest = joined_messages((*obstacles(situation), *_missing(situation), *quiet(situation)))
    rounding = f"{situation.rounding}." if situation.rounding else ""
    return " ".join(part for part in (head, rest, _dead_end(situation), outlook(situation), rounding) if part)


def quiet(situation: Situation) -> tuple[Obstacle, ...]:
    """Nodes that are in and have missed a keep-alive."""
    times = situation.spec.rendezvous
    patience, window = 2 * times.keep_alive_interval, times.keep_alive_interval * times.keep_alive_max_attempts
    silent = sorted(node.index for node in situation.joined.values() if node.silent)
    told = f"joined, has not called for {patience} s and counts as lost after {window} s"
    return tuple(
        Obstacle(reason=constants.REASON_STARTING, message=f"{node_name(situation.job.name, index)} {told}")
        for index in silent
    )


def _dead_end(situation: Situation) -> str:
    """Said when too few nodes are left that could come by themselves."""
    wanted = situation.ledger.unfinished
    needed = max(1, situation.spec.min_nodes - len(situation.ledger.completed))
    able = len(wanted) - len(situation.blocked)
    if situation.formed or not situation.blocked or able >= needed:
        return ""
    nodes = {0: "none", 1: "only 1 node"}.get(able, f"only {able} nodes")
    return f"No round can form as things are: {needed} needed, and {nodes} can come."


def _missing(situation: Situation) -> tuple[Obstacle, ...]:
    """Nodes that are not in and have no obstacle that anybody told."""
    refused = {problem.target for problem in situation.problems}
    since = running_since(situation)
    result = []
    for index in sorted(situation.ledger.unfinished):
        pod = situation.current.get(index)
        if (pod is None and situation.target(index) in refused) or (
            pod is not None and (pod.obstacle or pod.uid in situation.joined)
        ):
            continue
        told = situation.rest(index) or _doing(situation, pod, since)
        name = node_name(situation.job.name, index)
        result.append(Obstacle(reason=constants.REASON_STARTING, message=f"{name} {told}"))
    return tuple(result)


def _doing(situation: Situation, pod: PodFacts | None, since: Mapping[str, datetime]) -> str:
    if pod is None:
        return "has no pod yet"
    if pod.phase != "Running":
        return f"is {pod.phase}"
    event = situation.observed.node_events.get(pod.name)
    if event is not None and event.state == constants.NODE_FAILED:
        words = event.message.removeprefix(f"{node_name(situation.job.name, pod.index)}: ")
        return f"runs and has not joined again after {event.reason}: {words}"
    if situation.view is not None and pod.uid in situation.view.misdirected:
        named = situation.view.misdirected[pod.uid]
        return f"runs and calls for run {named!r}, not for that of this job: its command must name none (--rdzv-id)"
    if pod.uid in situation.members:
        return "has not heard of the new round yet"
    at = f" since {clock(since[pod.uid], situation.observed.now)}" if pod.uid in since else ""
    return f"runs{at} and has not joined"
