"""Puts the status together."""

from collections.abc import Mapping, Sequence
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.model import RendezvousStatus
from elasticjob.operator.model.fields import without_empty
from elasticjob.operator.pods import selector
from elasticjob.operator.policies.history import extended
from elasticjob.operator.policies.spare_nodes import counted_replicas
from elasticjob.operator.situation import Situation, Stage
from elasticjob.operator.status.conditions import conditions
from elasticjob.operator.status.nodes import node_table
from elasticjob.operator.status.rendezvous import rendezvous_status
from elasticjob.rendezvous.orders import RunState


def compose(situation: Situation) -> dict[str, Any]:
    """The whole status. The same situation gives the same status, so that an unchanged one is not written."""
    table = node_table(situation)
    rendezvous = rendezvous_status(situation)
    living = [pod for pod in situation.current.values() if pod.end is None]
    replicas = counted_replicas(len(living), size=situation.spec.size)
    return without_empty(
        {
            "observedGeneration": situation.job.generation,
            "phase": phase(situation),
            "size": f"{_active(situation)}/{situation.spec.size}",
            "replicas": replicas,
            "readyReplicas": min(replicas, sum(pod.ready for pod in living)),
            "selector": selector(situation.job.uid),
            "startTime": situation.start_time,
            "completionTime": situation.completion_time,
            "conditions": [one.to_dict() for one in conditions(situation)],
            "restarts": _restarts(situation, rendezvous),
            "rendezvous": rendezvous.to_dict(),
            "nodeCounts": dict(table.counts),
            "nodes": [node.to_dict() for node in table.nodes],
            "history": [dict(entry) for entry in _history(situation)],
            "ledger": situation.ledger.to_dict(),
        },
        keep=("observedGeneration", "replicas", "readyReplicas"),
    )


def phase(situation: Situation) -> str:
    """One word for the print column."""
    if situation.stage is Stage.FINISHED:
        won = situation.verdict is not None and situation.verdict.succeeded
        return constants.PHASE_SUCCEEDED if won else constants.PHASE_FAILED
    fixed = {Stage.DELETING: constants.PHASE_TERMINATING, Stage.SUSPENDED: constants.PHASE_SUSPENDED}
    return fixed.get(situation.stage) or _active_phase(situation)


def _active_phase(situation: Situation) -> str:
    view = situation.view
    if situation.formed:
        return constants.PHASE_RUNNING
    if view is None:
        known = (constants.PHASE_FORMING, constants.PHASE_RUNNING, constants.PHASE_REFORMING)
        return situation.before.phase if situation.before.phase in known else constants.PHASE_PENDING
    if view.state is RunState.REFORMING or situation.ledger.round > situation.ledger.base_round:
        return constants.PHASE_REFORMING
    return constants.PHASE_FORMING if situation.joined else constants.PHASE_PENDING


def _history(situation: Situation) -> Sequence[Mapping[str, Any]]:
    before, ledger = situation.before, situation.ledger
    return extended(
        before.history,
        job=situation.job.name,
        before=before.rendezvous,
        faulty=before.ledger.unsettled | ledger.unsettled,
        surprised=before.ledger.surprised | ledger.surprised,
        view=situation.view,
        stamp=situation.stamp,
    )


def _active(situation: Situation) -> int:
    """Nodes that take part. A closed or suspended run has none."""
    if situation.stage is not Stage.ACTIVE:
        return 0
    if situation.view is None:
        return situation.before.rendezvous.participants if situation.before.is_true(constants.READY) else 0
    return len(situation.joined)


def _restarts(situation: Situation, rendezvous: RendezvousStatus) -> dict[str, int]:
    """What users see of the counts: failures of pods and of workers together."""
    return {
        "failures": situation.ledger.failures + rendezvous.worker_failures,
        "disruptions": situation.ledger.disruptions,
        "resizes": situation.ledger.resizes,
    }
