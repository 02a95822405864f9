"""A job whose spec cannot be understood: it was stored before its schema was tightened.

Its pods are left alone, the user is told which field is wrong, and all goes on once that is corrected.
"""

from elasticjob.operator import constants
from elasticjob.operator.actions import Plan
from elasticjob.operator.model.stamps import format_time
from elasticjob.operator.observed import Observed
from elasticjob.operator.status.conditions import stamped


def plan_invalid(observed: Observed) -> Plan:
    """Only a status: everything in it stays but the conditions."""
    job = observed.job
    words = (constants.REASON_INVALID_SPEC, job.spec_error)
    conditions = stamped(
        {constants.READY: ("False", *words), constants.STALLED: ("True", *words)},
        before=job.status,
        generation=job.generation,
        stamp=format_time(observed.now),
    )
    status = {
        **job.stored_status,
        "observedGeneration": job.generation,
        "phase": job.status.phase or constants.PHASE_PENDING,
        "conditions": [condition.to_dict() for condition in conditions],
    }
    return Plan(status=None if status == job.stored_status else status)
