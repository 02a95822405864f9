"""The decision about one job: from what is observed to what is to be done. Pure.

The job of another controller is not touched. Any other is in one of four stages, each with a module of its own: it is
being deleted, it is over, it is suspended, or it is active. All of them compose one status, one set of orders and a
list of actions. The order of the rules for an active job is: count what ended; is the job over (success first, then
budget, rendezvous, deadlines, template); choose the nodes; delete what is over; create what is missing.
"""

from elasticjob.operator.actions import (
    Action,
    CreateDisruptionBudget,
    CreatePod,
    CreateService,
    DeleteDisruptionBudget,
    DeleteJob,
    DeletePod,
    EventFact,
    Plan,
    UpdateDisruptionBudget,
)
from elasticjob.operator.observed import NodeEvent, Observed
from elasticjob.operator.plan.active import plan_active
from elasticjob.operator.plan.deleting import plan_deleting
from elasticjob.operator.plan.finished import plan_finished, stored_verdict
from elasticjob.operator.plan.invalid import plan_invalid
from elasticjob.operator.plan.suspended import plan_suspended
from elasticjob.operator.policies.management import is_ours
from elasticjob.operator.policies.obstacles import ApiProblem

__all__ = [
    "Action",
    "ApiProblem",
    "CreateDisruptionBudget",
    "CreatePod",
    "CreateService",
    "DeleteDisruptionBudget",
    "DeleteJob",
    "DeletePod",
    "EventFact",
    "NodeEvent",
    "Observed",
    "Plan",
    "UpdateDisruptionBudget",
    "plan",
]


def plan(observed: Observed) -> Plan:
    """Decide. Planning an unchanged observation again, with the planned status stored, changes nothing."""
    if not is_ours(observed.job.managed_by):
        return Plan()
    spec = observed.job.spec
    if spec is None:
        return plan_invalid(observed)
    if observed.job.deletion is not None:
        return plan_deleting(observed, spec)
    if stored_verdict(observed.job.status) is not None:
        return plan_finished(observed, spec)
    if spec.suspend:
        return plan_suspended(observed, spec)
    return plan_active(observed, spec)
