"""What the rendezvous is to know of a job."""

from elasticjob.operator import constants
from elasticjob.operator.model import ElasticJob, RendezvousSpec
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.policies.budget import worker_failures_left
from elasticjob.operator.policies.pod_end import EndKind
from elasticjob.operator.policies.spare_nodes import places, surplus
from elasticjob.operator.situation import Situation, Stage
from elasticjob.rendezvous.orders import CloseReason, NodeFacts, NodePhase, RunOrders

SCALED_DOWN = "ScaledDown"
SUSPENDED = "Suspended"
LEAVING = "Leaving"
"""Reasons of nodes that are to leave without anything having happened to them; the last one where no other fits."""


def run_orders(situation: Situation, *, close: CloseReason | None = None, message: str = "") -> RunOrders:
    """The orders for the run: whom to expect, which pods there are, and whether to close."""
    spec, job = situation.spec, situation.job
    return RunOrders(
        run_id=job.uid,
        namespace=job.namespace,
        job=job.name,
        min_nodes=spec.min_nodes,
        step=spec.step_size,
        max_nodes=places(size=spec.size, spares=spec.spares, most=spec.max_nodes),
        expected=expected_nodes(situation),
        unable=situation.blocked,
        nodes={pod.uid: _node_facts(situation, pod) for pod in situation.pods},
        max_worker_failures=worker_failures_left(
            max_restarts=spec.max_restarts, pod_failures=situation.ledger.failures
        ),
        join_timeout=float(spec.rendezvous.join_timeout),
        last_call_timeout=float(spec.rendezvous.last_call_timeout),
        wait_for_all=float(spec.wait_for_replicas),
        close_timeout=float(spec.rendezvous.close_timeout),
        keep_alive_interval=float(spec.rendezvous.keep_alive_interval),
        keep_alive_max_attempt=spec.rendezvous.keep_alive_max_attempts,
        backend=spec.rendezvous.backend,
        backend_conf=spec.rendezvous.conf,
        close=close,
        close_message=message,
    )


def place_of_state(job: ElasticJob) -> RunOrders:
    """Orders that name a run and where its state is kept, and want nothing of it."""
    meeting = RendezvousSpec() if job.spec is None else job.spec.rendezvous
    return RunOrders(
        run_id=job.uid,
        namespace=job.namespace,
        job=job.name,
        min_nodes=1,
        max_nodes=1,
        expected=frozenset(),
        nodes={},
        backend=meeting.backend,
        backend_conf=meeting.conf,
    )


def expected_nodes(situation: Situation) -> frozenset[int]:
    """Nodes that have not succeeded, whose pod is not announced to be disrupted, and that have a place."""
    spec, ledger = situation.spec, situation.ledger
    doomed = {index for index, pod in situation.current.items() if pod.target}
    members = {node.index for node in situation.joined.values()} - ledger.completed if situation.formed else set()
    beyond = surplus(members & ledger.indexes, size=spec.size - len(ledger.completed), spares=spec.spares)
    return ledger.unfinished - doomed - beyond


def _node_facts(situation: Situation, pod: PodFacts) -> NodeFacts:
    phase = _phase(situation, pod)
    drains = phase is NodePhase.DRAINING
    reason = pod.end.reason if pod.end else (pod.target_reason or _why_it_leaves(situation, pod)) if drains else ""
    if _is_replaced_on_lost_machine(situation, pod):
        reason = constants.POD_NODE_LOST
    return NodeFacts(pod_uid=pod.uid, pod=pod.name, index=pod.index, phase=phase, reason=reason)


def _why_it_leaves(situation: Situation, pod: PodFacts) -> str:
    if situation.stage is Stage.SUSPENDED:
        return SUSPENDED
    return SCALED_DOWN if situation.stage is Stage.ACTIVE and pod.index not in situation.ledger.indexes else LEAVING


def _phase(situation: Situation, pod: PodFacts) -> NodePhase:
    counts = _counts(situation, pod)
    if _is_over(pod):
        won = (pod.end is not None and pod.end.kind is EndKind.SUCCEEDED) or (
            counts and pod.index in situation.ledger.completed
        )
        return NodePhase.SUCCEEDED if won else NodePhase.FAILED
    if _is_replaced_on_lost_machine(situation, pod):
        return NodePhase.FAILED
    leaves = pod.deleting or pod.target or not counts or pod.index not in situation.ledger.indexes
    return NodePhase.DRAINING if leaves else NodePhase.ALIVE


def _counts(situation: Situation, pod: PodFacts) -> bool:
    current = situation.current.get(pod.index)
    return current is not None and current.uid == pod.uid


def _is_over(pod: PodFacts) -> bool:
    return pod.final or (pod.end is not None and pod.end.exit_code is not None)


def _is_replaced_on_lost_machine(situation: Situation, pod: PodFacts) -> bool:
    """Whether its group goes on without it, though nobody knows whether its containers have ended.

    Its calls are refused from now on.
    """
    return pod.unreachable_since is not None and not _counts(situation, pod) and not _is_over(pod)
