"""What is known of one job when it is planned. Plain data; `reconcile` gathers it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from elasticjob.operator.model import ElasticJob
from elasticjob.operator.pods import OperatorFacts
from elasticjob.operator.policies.obstacles import ApiProblem
from elasticjob.rendezvous.orders import RunView


@dataclass(frozen=True, kw_only=True)
class NodeEvent:
    """The last RdzvEvent of one pod.

    Args:
        pod: Name of the pod.
        reason: Name of the event, e.g. `WorkerFailed`.
        state: INIT, RUNNING, SUCCEEDED or FAILED.
    """

    pod: str
    reason: str
    message: str
    state: str
    rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One job and everything around it.

    Args:
        job: The object as stored.
        facts: What the operator knows of itself.
        pods: Every pod whose controller is this job (by UID), as the API returned it.
        service: Whether the job's Service exists (and is this job's).
        disruption_budget: The job's PodDisruptionBudget (if it is this job's), as the API returned it.
        view: What the hosted rendezvous says; None while it does not know the run.
        node_events: The last RdzvEvent by pod name.
        problems: Refused calls.
        now: The time of day in UTC, for stamps and for what is counted from stamps in the status (deadlines survive
            operator restarts).
        clock: Monotonic seconds, for back-off.
    """

    job: ElasticJob
    facts: OperatorFacts
    now: datetime
    clock: float
    pods: tuple[Mapping[str, Any], ...] = ()
    service: bool = False
    disruption_budget: Mapping[str, Any] | None = None
    view: RunView | None = None
    node_events: Mapping[str, NodeEvent] = field(default_factory=dict)
    problems: tuple[ApiProblem, ...] = ()
