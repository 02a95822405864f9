"""Jobs as the API gives them, for the plugin to show."""

from datetime import datetime, timezone
from typing import Any

from elasticjob.operator.constants import LABEL_ATTEMPT, LABEL_NODE_INDEX

NOW = datetime(2030, 1, 1, 14, 10, 0, tzinfo=timezone.utc)
Body = dict[str, Any]


def condition(type_: str, status: str, reason: str, message: str = "", *, since: str = "14:00:00") -> Body:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": f"2030-01-01T{since}Z",
    }


def node(index: int, state: str, *, rank: int | None = None, **more: Any) -> Body:
    placed = {} if rank is None else {"rank": rank}
    return {
        "name": f"digits-{index}",
        "index": index,
        "state": state,
        "restarts": 0,
        "pod": f"digits-{index}-0",
        "node": f"worker-{index}",
        **placed,
        **more,
    }


def round_(number: int, time: str, before: int, after: int, cause: str, **more: Any) -> Body:
    entry = {"round": number, "time": f"2030-01-01T{time}Z", "from": before, "to": after, "cause": cause}
    return {**entry, "planned": True, "seconds": 1.5, **more}


def job(*, status: Body | None = None, **spec: Any) -> Body:
    return {
        "metadata": {
            "name": "digits",
            "namespace": "train",
            "uid": "uid-1",
            "generation": 2,
            "resourceVersion": "7",
            "creationTimestamp": "2030-01-01T13:59:55Z",
        },
        "spec": {"replicas": 2, "minReplicas": 1, "maxReplicas": 3, "restartPolicy": {"maxRestarts": 10}, **spec},
        "status": status or {},
    }


def running(**more: Any) -> Body:
    """Two of two nodes train in round 3; rank 0 was killed four minutes ago."""
    status = {
        "observedGeneration": 2,
        "phase": "Running",
        "size": "2/2",
        "startTime": "2030-01-01T14:00:00Z",
        "conditions": [
            condition("Ready", "True", "RoundFormed", "round 3 trains on 2 of 2 nodes", since="14:08:00"),
            condition("Reconciling", "False", "Settled"),
            condition("RendezvousReady", "True", "RoundFormed", "round 3, Formed: digits-0 joined."),
        ],
        "restarts": {"failures": 0, "disruptions": 1, "resizes": 0},
        "rendezvous": {"backend": "kubernetes", "epoch": 4, "round": 3, "state": "Formed", "participants": 2},
        "nodeCounts": {"total": 2, "init": 0, "running": 2, "succeeded": 0, "failed": 0, "omitted": 0},
        "nodes": [
            node(0, "RUNNING", rank=1, restarts=1, pod="digits-0-1", lastFailure={"reason": "Killed", "exitCode": 137}),
            node(1, "RUNNING", rank=0),
        ],
        "history": [
            round_(1, "14:00:00", 0, 2, "the run began"),
            round_(2, "14:06:00", 2, 1, "digits-0: Killed (pod)", planned=False, node="digits-0"),
            round_(3, "14:08:00", 1, 2, "digits-0 joined", seconds=0.4),
        ],
    }
    return job(status={**status, **more})


def waiting(reason: str, message: str, **more: Any) -> Body:
    """No round has formed."""
    status = {
        "observedGeneration": 2,
        "phase": "Forming",
        "size": "1/2",
        "startTime": "2030-01-01T14:00:00Z",
        "conditions": [
            condition("Ready", "False", reason, message),
            condition("Reconciling", "True", "Starting", message),
            condition("RendezvousReady", "False", "WaitingForNodes", "round 0, Waiting: the run began."),
        ],
        "rendezvous": {"backend": "kubernetes", "epoch": 4, "round": 0, "state": "Waiting"},
        "nodes": [node(0, "INIT"), node(1, "INIT", node="", reason="Unschedulable", message="is Pending: no room")],
    }
    return job(status={**status, **more})


def pod(index: int, *, attempt: int = 0, machine: str = "", phase: str = "Running", **metadata: Any) -> Body:
    labels = {LABEL_NODE_INDEX: str(index), LABEL_ATTEMPT: str(attempt)}
    name = f"digits-{index}-{attempt}"
    return {
        "metadata": {"name": name, "uid": f"uid-{index}-{attempt}", "labels": labels, **metadata},
        "spec": {"nodeName": machine or f"worker-{index}"},
        "status": {"phase": phase},
    }
