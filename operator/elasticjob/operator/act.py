"""Carries out the actions of a plan.

Actions are done in the order of the plan; those of one type side by side, at most `parallelism` at a time. Creations
begin with one call and double until they are so many, and the first refusal ends them: a quota that is used up costs
one refused call, not two hundred. Whatever is learnt from the answers goes to the cache at once, before any watch tells
it.

No child is created once the job is known to be deleted: that is looked up before every single call.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticjob.operator.actions import (
    Action,
    CreateDisruptionBudget,
    CreatePod,
    CreateService,
    DeleteDisruptionBudget,
    DeleteJob,
    DeletePod,
    UpdateDisruptionBudget,
)
from elasticjob.operator.cache import Cache, JobKey
from elasticjob.operator.constants import KIND, REASON_PREDECESSOR
from elasticjob.operator.errors import AlreadyExists, ClusterError, Conflict, NotFound, NotLeader
from elasticjob.operator.ports import Body, Clock, ClusterPort, Resource
from elasticjob.operator.problems import Problems
from elasticjob.operator.resources import DISRUPTION_BUDGETS, JOBS, KINDS, PODS, SERVICES


@dataclass(kw_only=True)
class Report:
    """What became of the actions.

    Args:
        failures: The refused calls, in the order of their answers.
        news: Whether the cache or the open problems of the job have changed, so that it should be planned again at
            once. A watch event that comes later tells nothing new then.
    """

    failures: list[ClusterError] = field(default_factory=list)
    news: bool = False


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The job whose actions are carried out."""

    key: JobKey
    uid: str


class ForeignOwner(AlreadyExists):
    """The name is taken by an object that does not belong to this job."""


class PredecessorRemains(AlreadyExists):
    """The name is taken by an object of the deleted job that had this job's name: the garbage collector removes it."""


class Actor:
    """Does what plans ask for."""

    def __init__(
        self, *, cluster: ClusterPort, cache: Cache, problems: Problems, clock: Clock, parallelism: int
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._problems = problems
        self._clock = clock
        self._parallelism = parallelism

    async def act(self, owner: Owner, actions: Sequence[Action]) -> Report:
        """Carry out actions. Refusals are reported and remembered, not raised.

        Raises:
            NotLeader: This process leads no longer.
        """
        report = Report()
        for kind, group in itertools.groupby(actions, key=type):
            await self._run_all(owner, list(group), report, careful=kind in (CreatePod, CreateService))
        return report

    async def _run_all(self, owner: Owner, actions: Sequence[Action], report: Report, *, careful: bool) -> None:
        rest = deque(actions)

        async def work() -> None:
            while rest and not (careful and report.failures):
                await self._run(owner, rest.popleft(), report)

        size = 1 if careful else self._parallelism
        while size < self._parallelism and rest and not report.failures:
            batch = [rest.popleft() for _ in range(min(size, len(rest)))]
            await asyncio.gather(*(self._run(owner, action, report) for action in batch))
            size *= 2
        # No call waits for a slower one from here on.
        await asyncio.gather(*(work() for _ in range(min(self._parallelism, len(rest)))))

    async def _run(self, owner: Owner, action: Action, report: Report) -> None:
        target = target_of(action)
        try:
            await self._do(owner, action)
        except NotLeader:
            raise
        except ClusterError as error:
            report.failures.append(error)
            report.news |= self._problems.note(owner.key, target, error, now=self._clock.now())
        else:
            is_solved = self._problems.solve(owner.key, target)
            report.news |= is_solved or not isinstance(action, DeleteJob)

    async def _do(self, owner: Owner, action: Action) -> None:
        match action:
            case CreatePod():
                await self._create(owner, PODS, dict(action.body))
            case CreateService():
                await self._create(owner, SERVICES, dict(action.body))
            case DeletePod():
                await self._delete_pod(owner, action)
            case CreateDisruptionBudget():
                await self._create(owner, DISRUPTION_BUDGETS, dict(action.body))
            case UpdateDisruptionBudget():
                await self._update_disruption_budget(owner, dict(action.body))
            case DeleteDisruptionBudget():
                await self._delete_disruption_budget(owner, action)
            case DeleteJob():
                await _unless_gone(
                    self._cluster.delete(JOBS, namespace=owner.key.namespace, name=action.name, uid=action.uid)
                )

    async def _create(self, owner: Owner, resource: Resource, body: Body) -> None:
        if not self._is_wanted(owner):
            return
        namespace = owner.key.namespace
        try:
            created = await self._cluster.create(resource, body, namespace=namespace)
        except AlreadyExists:
            found = await self._existing(owner, resource, body["metadata"]["name"])
            created = found or await self._cluster.create(resource, body, namespace=namespace)
        self._cache.see(resource, created)

    async def _existing(self, owner: Owner, resource: Resource, name: str) -> Body | None:
        """The object that has the name, if it is this job's: an earlier call was carried out but not answered.

        None if it has just gone: then the name is free.
        """
        try:
            found = await self._cluster.get(resource, namespace=owner.key.namespace, name=name)
        except NotFound:
            return None
        if controller_uid(found) == owner.uid:
            return found
        if _belonged_to_predecessor(found, owner):
            raise PredecessorRemains(
                f"Waits for {KINDS[resource]} {name} of the deleted job of the same name to be removed",
                status=409,
                reason=REASON_PREDECESSOR,
            )
        raise ForeignOwner(
            f'{resource.plural} "{name}" already exists and is not controlled by this job',
            status=409,
            reason="AlreadyExists",
        )

    async def _delete_pod(self, owner: Owner, action: DeletePod) -> None:
        left = await _unless_gone(
            self._cluster.delete(
                PODS,
                namespace=owner.key.namespace,
                name=action.name,
                uid=action.uid,
                grace_period=action.grace,
            )
        )
        pod = self._cache.children(PODS, owner.uid).get(action.uid)
        if left is None and pod is not None:
            self._cache.see(PODS, pod, deleted=True)
        elif left is not None and left.get("kind") == "Pod":
            self._cache.see(PODS, left)

    async def _update_disruption_budget(self, owner: Owner, body: Body) -> None:
        """Its status changes with every pod, so a version that is not the newest is no news: plan from that one."""
        try:
            stored = await self._cluster.replace(DISRUPTION_BUDGETS, body)
        except Conflict:
            name = body["metadata"]["name"]
            stored = await self._cluster.get(DISRUPTION_BUDGETS, namespace=owner.key.namespace, name=name)
        self._cache.see(DISRUPTION_BUDGETS, stored)

    async def _delete_disruption_budget(self, owner: Owner, action: DeleteDisruptionBudget) -> None:
        namespace = owner.key.namespace
        await _unless_gone(
            self._cluster.delete(DISRUPTION_BUDGETS, namespace=namespace, name=action.name, uid=action.uid)
        )
        found = self._cache.children(DISRUPTION_BUDGETS, owner.uid).get(action.uid)
        if found is not None:
            self._cache.see(DISRUPTION_BUDGETS, found, deleted=True)

    def _is_wanted(self, owner: Owner) -> bool:
        job = self._cache.job(owner.key)
        return job is not None and job["metadata"]["uid"] == owner.uid and not job["metadata"].get("deletionTimestamp")


async def _unless_gone(call: Awaitable[Body]) -> Body | None:
    """The answer to a deletion; None if exactly this object does not exist any more."""
    try:
        return await call
    except (NotFound, Conflict):
        return None


def _belonged_to_predecessor(body: Body, owner: Owner) -> bool:
    owners: list[dict[str, Any]] = body["metadata"].get("ownerReferences") or []
    return any(
        one.get("controller")
        and (one.get("kind"), one.get("name")) == (KIND, owner.key.name)
        and one["uid"] != owner.uid
        for one in owners
    )


def controller_uid(body: Body) -> str:
    """UID of the object's controller; empty if it has none."""
    owners: list[dict[str, Any]] = body["metadata"].get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def target_of(action: Action) -> str:
    """Kind and name of the object that an action is about."""
    named: dict[type[Any], Callable[[Any], str]] = {
        CreatePod: lambda a: f"Pod/{a.body['metadata']['name']}",
        CreateService: lambda a: f"Service/{a.body['metadata']['name']}",
        DeletePod: lambda a: f"Pod/{a.name}",
        CreateDisruptionBudget: lambda a: f"PodDisruptionBudget/{a.body['metadata']['name']}",
        UpdateDisruptionBudget: lambda a: f"PodDisruptionBudget/{a.body['metadata']['name']}",
        DeleteDisruptionBudget: lambda a: f"PodDisruptionBudget/{a.name}",
        DeleteJob: lambda a: f"ElasticJob/{a.name}",
    }
    return named[type(action)](action)
