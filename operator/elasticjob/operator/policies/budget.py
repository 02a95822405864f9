"""How often a job may fail before it is over.

The budget is the job's and covers both kinds of failure: pods that failed, and workers that their agent restarted in
place. Disruptions use none of it.
"""

from elasticjob.operator import constants
from elasticjob.operator.policies.verdict import Verdict
from elasticjob.rendezvous.wording import counted


def budget(*, max_restarts: int, pod_failures: int, worker_failures: int, last: str) -> Verdict | None:
    """The verdict once the failures exceed the budget, or None.

    Args:
        max_restarts: So many failures are restarted; one more ends the job.
        pod_failures: Incidents in which pods failed.
        worker_failures: Failures that were restarted in place.
        last: What failed last, for people; may be empty.
    """
    failures = pod_failures + worker_failures
    if failures <= max_restarts:
        return None
    exceed = "exceeds" if failures == 1 else "exceed"
    message = f"{counted(failures, 'failure')} {exceed} restartPolicy.maxRestarts ({max_restarts})"
    if last:
        message = f"{message}; last: {last}"
    return Verdict(succeeded=False, reason=constants.REASON_MAX_RESTARTS, message=message)


def worker_failures_left(*, max_restarts: int, pod_failures: int) -> int:
    """How often workers may fail in place before the rendezvous must refuse another round."""
    return max(0, max_restarts - pod_failures)
