"""Remembers which calls for a job the API server refused, so that the job's status can tell.

The reason why a pod cannot be created (a quota, an admission policy, a missing service account) is known only to the
call that failed. It is kept here, in the API's own words, until the same call succeeds or is no longer made.
"""

from dataclasses import replace

from elasticjob.operator.cache import JobKey
from elasticjob.operator.errors import ClusterError
from elasticjob.operator.policies.obstacles import ApiProblem

LIFETIME = 300.0
"""Seconds after which a call that was not tried again counts as no longer wanted; longer than any back-off."""


class Problems:
    """The open problems of all jobs."""

    def __init__(self) -> None:
        self._open: dict[JobKey, dict[str, ApiProblem]] = {}

    def of(self, key: JobKey, *, now: float) -> tuple[ApiProblem, ...]:
        """The open problems of one job, oldest target first. One that was not met again for long is no longer open."""
        known = self._open.get(key, {})
        for target in [target for target, problem in known.items() if now - problem.at > LIFETIME]:
            del known[target]
        return tuple(known.values())

    def note(self, key: JobKey, target: str, error: ClusterError, *, now: float) -> bool:
        """A call was refused.

        Returns:
            Whether this tells anything new about the target.
        """
        before = self._open.setdefault(key, {}).get(target)
        problem = ApiProblem(target=target, status=error.status, reason=error.reason, message=str(error), at=now)
        is_new = before is None or (before.status, before.message) != (problem.status, problem.message)
        if before is not None:
            problem = replace(problem, count=before.count + 1)
        self._open[key][target] = problem
        return is_new

    def solve(self, key: JobKey, target: str) -> bool:
        """A call succeeded. True if it had been a problem."""
        targets = self._open.get(key, {})
        return targets.pop(target, None) is not None

    def forget(self, key: JobKey) -> None:
        """The job is gone."""
        self._open.pop(key, None)
