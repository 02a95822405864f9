"""Why the job does not train on all its nodes, in one message that joins rendezvous and cluster.

`1 of 2 joined (min 2). digits-1 is Pending: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.`
"""

from elasticjob.operator import constants
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.pods import node_name, pod_name
from elasticjob.operator.policies.obstacles import Obstacle, joined_messages, refusals
from elasticjob.operator.situation import Situation


def obstacles(situation: Situation) -> tuple[Obstacle, ...]:
    """All that is known to be in the way: the state, then refused calls, then pods that cannot start, by index."""
    blocked = (
        Obstacle(reason=pod.obstacle.reason, message=f"{node_name(situation.job.name, index)} {pod.obstacle.message}")
        for index, pod in sorted(situation.current.items())
        if pod.obstacle is not None and pod.uid not in situation.joined and index in situation.ledger.indexes
    )
    return (*unserved(situation), *refusals(situation.problems), *blocked)


def unserved(situation: Situation) -> tuple[Obstacle, ...]:
    """Why the rendezvous does not serve the run, if it told."""
    heard = situation.heard
    if heard is None or heard.taken_over or "storeError" not in heard.details:
        return ()
    message = f"the state of the rendezvous cannot be read: {heard.details['storeError']}"
    return (Obstacle(reason=constants.REASON_NOT_SERVED, message=message),)


def explain(situation: Situation) -> str:
    """How many have joined, and what the others are doing."""
    spec = situation.spec
    wanted = len(situation.ledger.indexes - situation.ledger.completed)
    head = f"{len(situation.joined)} of {wanted} joined (min {spec.min_nodes})."
    known = obstacles(situation)
    rest = joined_messages((*known, *_missing(situation)))
    return f"{head} {rest}".strip()


def _missing(situation: Situation) -> tuple[Obstacle, ...]:
    """Nodes that are not in and have no obstacle that anybody told."""
    job = situation.job.name
    refused = {problem.target for problem in situation.problems}
    result = []
    for index in sorted(situation.ledger.indexes - situation.ledger.completed):
        pod = situation.current.get(index)
        target = f"Pod/{pod_name(job, index, situation.ledger.ended.get(index, 0))}"
        if (pod is None and target in refused) or (pod is not None and (pod.obstacle or pod.uid in situation.joined)):
            continue
        result.append(Obstacle(reason=constants.REASON_STARTING, message=f"{node_name(job, index)} {_doing(pod)}"))
    return tuple(result)


def _doing(pod: PodFacts | None) -> str:
    if pod is None:
        return "has no pod yet"
    return "runs and has not joined" if pod.phase == "Running" else f"is {pod.phase}"
