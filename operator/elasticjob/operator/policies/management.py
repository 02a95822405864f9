"""Which jobs this operator manages: those that name it, and those that name nobody.

A job of another controller (a queue that runs it in another cluster, say) is not touched in any way: that one creates
pods and writes the status.
"""

from elasticjob.operator.constants import CONTROLLER


def is_ours(managed_by: str) -> bool:
    """Whether a job with this `spec.managedBy` (empty if unset) is this operator's to run."""
    return managed_by in ("", CONTROLLER)
