"""Brings one job from what is to what should be: observe, plan, act, one status write, then Events.

The plan is pure and made from the cache alone, so reconciling is level-triggered: whatever was missed, repeated or done
by an earlier leader, the next run plans from what is there. Two rules give the order:

- What a plan marks as `charge_first` is stored before anything is done: a failure that was acted upon but not counted
  would be counted never, or twice. What has happened to pods is no decision, though: the rendezvous is told at once,
  since survivors wait for nothing else.
- A status is written by replacing the version that the plan was made from. On a conflict nothing is retried blindly:
  the job is read again and planned anew.

Jobs are independent of each other; one job is never reconciled twice at a time (see `work_queue`).
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticjob.operator.act import Actor, Owner, Report, controller_uid
from elasticjob.operator.actions import EventFact, Plan
from elasticjob.operator.cache import Cache, JobKey
from elasticjob.operator.constants import API_VERSION, KIND, WARNING
from elasticjob.operator.errors import ClusterError, Conflict, NotFound, NotLeader, Starting, TooManyRequests
from elasticjob.operator.mirror.mirror import EventMirror
from elasticjob.operator.model import ElasticJob
from elasticjob.operator.observed import Observed
from elasticjob.operator.plan.orders import place_of_state
from elasticjob.operator.pods import OperatorFacts
from elasticjob.operator.policies.management import is_ours
from elasticjob.operator.ports import (
    Body,
    Clock,
    ClusterPort,
    EventSink,
    ObjectReference,
    Occurrence,
    RendezvousHost,
    Resource,
)
from elasticjob.operator.problems import Problems
from elasticjob.operator.resources import DISRUPTION_BUDGETS, JOBS, KINDS, PODS, SERVICES
from elasticjob.rendezvous.orders import NodeFacts, NodePhase, RunOrders

_log = logging.getLogger(__name__)

Planner = Callable[[Observed], Plan]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What should follow a reconcile.

    Args:
        again: Plan once more at once: something was learnt meanwhile.
        after: Plan once more in so many seconds at the latest, or None.
        failed: A call failed: plan once more after a growing pause, of at least `at_least` seconds.
    """

    again: bool = False
    after: float | None = None
    failed: bool = False
    at_least: float = 0.0


class Reconciler:
    """Reconciles jobs, one call each."""

    def __init__(
        self,
        *,
        cluster: ClusterPort,
        cache: Cache,
        host: RendezvousHost,
        events: EventSink,
        mirror: EventMirror,
        clock: Clock,
        facts: Callable[[], OperatorFacts],
        planner: Planner,
        parallelism: int,
        status_interval: float,
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._host = host
        self._events = events
        self._mirror = mirror
        self._clock = clock
        self._facts = facts
        self._planner = planner
        self._status_interval = status_interval
        self._problems = Problems()
        self._actor = Actor(cluster=cluster, cache=cache, problems=self._problems, clock=clock, parallelism=parallelism)
        self._runs: dict[JobKey, RunOrders] = {}
        self._ordered: dict[JobKey, RunOrders] = {}
        """What the rendezvous was told last, of jobs that have a run."""
        self._written: dict[JobKey, float] = {}

    async def reconcile(self, key: JobKey) -> Result:
        """Do once what the job needs now.

        Raises:
            NotLeader: This process leads no longer; everything is left to the one who does.
        """
        body = self._cache.job(key)
        self._drop_former_run(key, body)
        if body is None:
            return Result()
        job = ElasticJob.from_dict(body)
        try:
            plan = self._planner(self._observe(key, job))
            return await self._carry_out(key, body, job, plan)
        except NotLeader:
            raise
        except Conflict:
            return await self._read_again(key)
        except NotFound:
            return Result()  # deleted meanwhile; the watch tells
        except ClusterError as error:
            level = logging.INFO if isinstance(error, Starting) else logging.WARNING
            _log.log(level, "cannot reconcile: %s", error, extra={"job": str(key)})
            return _failure(error)

    def gone(self, resource: Resource, key: JobKey, name: str) -> bool:
        """An object is gone. Returns whether a call that it was in the way of, or was about it, may be made again."""
        return self._problems.solve(key, f"{KINDS[resource]}/{name}")

    def reset(self) -> None:
        """Forget what belongs to an earlier leadership; the cache stays."""
        self._runs.clear()
        self._ordered.clear()
        self._written.clear()

    def _observe(self, key: JobKey, job: ElasticJob) -> Observed:
        pods = self._own(PODS, job.uid)
        self._mirror.follow(_reference(key, job.uid), pods=[pod["metadata"]["name"] for pod in pods])
        return Observed(
            job=job,
            facts=self._facts(),
            now=self._clock.wall(),
            clock=self._clock.now(),
            pods=pods,
            service=bool(self._own(SERVICES, job.uid)),
            disruption_budget=next(iter(self._own(DISRUPTION_BUDGETS, job.uid)), None),
            view=self._host.view(job.uid),
            node_events=self._mirror.last_events(job.uid),
            problems=self._problems.of(key, now=self._clock.now()),
        )

    def _own(self, resource: Resource, uid: str) -> tuple[Body, ...]:
        """The objects of a kind that this very job controls."""
        return tuple(one for one in self._cache.children(resource, uid).values() if controller_uid(one) == uid)

    async def _carry_out(self, key: JobKey, body: Body, job: ElasticJob, plan: Plan) -> Result:
        if plan.charge_first:
            self._tell_what_happened(key, plan)
            await self._write_status(key, body, plan)
        self._give_orders(key, job, plan)
        report = await self._actor.act(Owner(key=key, uid=job.uid), plan.actions)
        wait = 0.0
        if not plan.charge_first:
            wait = await self._write_status_in_turn(key, body, plan)
        return _result(plan, report, wait)

    def _give_orders(self, key: JobKey, job: ElasticJob, plan: Plan) -> None:
        if plan.orders is not None:
            self._host.apply(plan.orders)
            self._ordered[key] = plan.orders
        else:
            self._host.forget(job.uid)
            self._ordered.pop(key, None)
        if is_ours(job.managed_by):
            self._runs[key] = place_of_state(job)

    def _tell_what_happened(self, key: JobKey, plan: Plan) -> None:
        """Tell the rendezvous of pods that have ended or are gone, and nothing of what has been decided."""
        known, orders = self._ordered.get(key), plan.orders
        if known is None or orders is None or known.run_id != orders.run_id or orders.close is not None:
            return
        nodes = {uid: _as_it_is(fact, orders.nodes[uid]) for uid, fact in known.nodes.items() if uid in orders.nodes}
        if nodes != known.nodes:
            self._ordered[key] = replace(known, nodes=nodes)
            self._host.apply(self._ordered[key])

    async def _write_status_in_turn(self, key: JobKey, body: Body, plan: Plan) -> float:
        """Write unless the last write was a moment ago. Returns the seconds until the write's turn comes, or 0."""
        turn = self._written.get(key, float("-inf")) + self._status_interval - self._clock.now()
        if plan.status is not None and turn > 0:
            return turn
        await self._write_status(key, body, plan)
        return 0.0

    async def _write_status(self, key: JobKey, body: Body, plan: Plan) -> None:
        if plan.status is not None:
            stored = await self._store(body, plan.status)
            self._cache.see(JOBS, stored)
            self._written[key] = self._clock.now()
        regarding = _reference(key, body["metadata"]["uid"])
        for fact in plan.events:
            self._events.emit(_occurrence(regarding, fact))

    async def _store(self, body: Body, status: Mapping[str, Any]) -> Body:
        return await self._cluster.replace(JOBS, {**body, "status": dict(status)}, subresource="status")

    async def _read_again(self, key: JobKey) -> Result:
        try:
            fresh = await self._cluster.get(JOBS, namespace=key.namespace, name=key.name)
        except NotFound:
            return Result()
        except ClusterError as error:
            return _failure(error)
        self._cache.see(JOBS, fresh)
        return Result(again=True)

    def _drop_former_run(self, key: JobKey, body: Body | None) -> None:
        """A job of this name that is gone, or was created anew, leaves nothing behind here."""
        uid = body["metadata"]["uid"] if body else None
        former = self._runs.get(key)
        if former is None or former.run_id == uid:
            return
        self._host.erase(former)
        self._mirror.forget(former.run_id)
        self._problems.forget(key)
        self._written.pop(key, None)
        self._ordered.pop(key, None)
        del self._runs[key]


def _as_it_is(before: NodeFacts, now: NodeFacts) -> NodeFacts:
    """A pod that has ended, as such; else what was said of it before: to drain it is a decision."""
    return now if now.phase in (NodePhase.FAILED, NodePhase.SUCCEEDED) else before


def _result(plan: Plan, report: Report, wait: float) -> Result:
    due = [seconds for seconds in (plan.requeue_after, wait or None) if seconds is not None]
    at_least = max((_pause_of(error) for error in report.failures), default=0.0)
    return Result(
        again=report.news,
        after=min(due, default=None),
        failed=bool(report.failures),
        at_least=at_least,
    )


def _failure(error: ClusterError) -> Result:
    return Result(failed=True, at_least=_pause_of(error))


def _pause_of(error: ClusterError) -> float:
    return error.retry_after if isinstance(error, TooManyRequests) else 0.0


def _reference(key: JobKey, uid: str) -> ObjectReference:
    return ObjectReference(api_version=API_VERSION, kind=KIND, namespace=key.namespace, name=key.name, uid=uid)


def _occurrence(regarding: ObjectReference, fact: EventFact) -> Occurrence:
    pod = ObjectReference(api_version="v1", kind="Pod", namespace=regarding.namespace, name=fact.pod, uid=fact.pod_uid)
    return Occurrence(
        regarding=regarding,
        reason=fact.reason,
        action=fact.action,
        note=fact.message,
        warning=fact.type == WARNING,
        related=pod if fact.pod else None,
    )
