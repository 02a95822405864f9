"""The decision about one job: from what is observed to what is to be done."""

from elasticjob.operator.actions import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    EventFact,
    Plan,
)
from elasticjob.operator.observed import ApiProblem, NodeEvent, Observed

__all__ = [
    "Action",
    "ApiProblem",
    "CreatePod",
    "CreateService",
    "DeleteJob",
    "DeletePod",
    "EventFact",
    "NodeEvent",
    "Observed",
    "Plan",
    "plan",
]


def plan(observed: Observed) -> Plan:
    """Decide. Planning an unchanged observation again, with the planned status stored, changes nothing."""
    return Plan()
