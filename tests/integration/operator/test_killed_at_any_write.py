"""An operator that is killed at any of its writes, against a real API server.

Each job lives the same life: it is created, one pod fails and one is deleted, and it is made smaller. In each life the
operator dies at another write, either before the call or before its answer. What its successor leaves must be what an
operator leaves that never died.
"""

from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest

from elasticjob.operator.cache import Cache, JobKey
from elasticjob.operator.constants import LABEL_JOB_UID
from elasticjob.operator.mirror.mirror import EventMirror
from elasticjob.operator.plan import plan
from elasticjob.operator.ports import Body, ClusterPort, ObjectList, Resource
from elasticjob.operator.reconcile import Reconciler
from elasticjob.operator.resources import JOBS, PODS, WATCHED, selector_of
from tests.integration.operator.operators import FACTS, Jobs
from tests.unit.operator.fakes import FakeClock, FakeHost, Sink

pytestmark = pytest.mark.timeout(600, func_only=True)

WRITES = 24
"""More than one life takes; later deaths do not happen."""
ROUNDS = 20


class KilledError(Exception):
    """The operator dies here."""


class Mortal:
    """The port of an operator that dies at one of its writes: before it is made, or once it is carried out."""

    def __init__(self, port: ClusterPort, *, at: int, carried_out: bool) -> None:
        self._port = port
        self._at = at
        self._carried_out = carried_out
        self.writes = 0

    async def get(self, resource: Resource, *, namespace: str | None, name: str, timeout: float | None = None) -> Body:
        return await self._port.get(resource, namespace=namespace, name=name, timeout=timeout)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        label_selector: str = "",
        timeout: float | None = None,
    ) -> ObjectList:
        return await self._port.list(resource, namespace=namespace, label_selector=label_selector, timeout=timeout)

    async def get_raw(self, path: str, *, timeout: float | None = None) -> Body:
        return await self._port.get_raw(path, timeout=timeout)

    async def create(self, resource: Resource, body: Body, **more: Any) -> Body:
        return await self._write(self._port.create(resource, body, **more))

    async def replace(self, resource: Resource, body: Body, **more: Any) -> Body:
        return await self._write(self._port.replace(resource, body, **more))

    async def patch(self, resource: Resource, patch: Mapping[str, Any], **more: Any) -> Body:
        return await self._write(self._port.patch(resource, patch, **more))

    async def delete(self, resource: Resource, **more: Any) -> Body:
        return await self._write(self._port.delete(resource, **more))

    async def _write(self, call: Awaitable[Body]) -> Body:
        self.writes += 1
        dies = self.writes == self._at
        if dies and not self._carried_out:
            if hasattr(call, "close"):
                call.close()
            raise KilledError
        answer = await call
        if dies:
            raise KilledError
        return answer


class Life:
    """One job and the operators that serve it, of which the first dies."""

    def __init__(self, jobs: Jobs, name: str, *, dies_at: int, carried_out: bool) -> None:
        self._jobs = jobs
        self._key = JobKey(jobs.namespace, name)
        self._port = Mortal(jobs.port, at=dies_at, carried_out=carried_out)
        self._sink = Sink()
        self._clock = FakeClock()
        self._begin()

    async def pass_by(self) -> None:
        """Creation, a failure, a loss and a change of the size."""
        name = self._key.name
        await self._jobs.create(name, replicas=4, minReplicas=1)
        await self._settle()
        failed = {"name": "worker", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        failed |= {"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        status: Body = {"status": {"phase": "Failed", "containerStatuses": [failed]}}
        await self._jobs.port.patch(
            PODS, status, namespace=self._key.namespace, name=f"{name}-1-0", subresource="status"
        )
        lost = await self._jobs.port.get(PODS, namespace=self._key.namespace, name=f"{name}-2-0")
        await self._jobs.port.delete(
            PODS, namespace=self._key.namespace, name=f"{name}-2-0", uid=lost["metadata"]["uid"], grace_period=0
        )
        await self._settle()
        await self._jobs.port.patch(JOBS, {"spec": {"replicas": 3}}, namespace=self._key.namespace, name=name)
        await self._settle()

    async def outcome(self) -> dict[str, Any]:
        """What is left: pods, accounts, and what was told."""
        name = self._key.name
        status = (await self._jobs.get(name))["status"]
        return {
            "pods": [pod.removeprefix(name) for pod in await self._jobs.pod_names() if pod.startswith(f"{name}-")],
            "ledger": status["ledger"],
            "restarts": status["restarts"],
        }

    @property
    def writes(self) -> int:
        return self._port.writes

    @property
    def told(self) -> Counter[str]:
        """Reasons of the Events."""
        return Counter(one.reason for one in self._sink.emitted)

    def _begin(self) -> None:
        """A new process: it remembers nothing."""
        self._cache = Cache()
        self._reconciler = Reconciler(
            cluster=self._port,
            cache=self._cache,
            host=FakeHost(),
            events=self._sink,
            mirror=EventMirror(clock=self._clock),
            clock=self._clock,
            facts=lambda: FACTS,
            planner=plan,
            parallelism=1,
            status_interval=0.0,
        )

    async def _settle(self) -> None:
        for _ in range(ROUNDS):
            before = self._port.writes
            try:
                await self._list()
                await self._reconciler.reconcile(self._key)
            except KilledError:
                self._begin()
                continue
            if self._port.writes == before:
                return
        raise AssertionError(f"not settled after {ROUNDS} rounds")

    async def _list(self) -> None:
        for resource in WATCHED:
            selector = selector_of(resource)
            listed = await self._port.list(resource, namespace=self._key.namespace, label_selector=selector)
            self._cache.replace(
                resource, listed.items, resource_version=listed.resource_version, namespace=self._key.namespace
            )


async def lived(jobs: Jobs, name: str, *, dies_at: int = 0, carried_out: bool = False) -> Life:
    life = Life(jobs, name, dies_at=dies_at, carried_out=carried_out)
    await life.pass_by()
    return life


@pytest.mark.parametrize("carried_out", [False, True], ids=["before-the-call", "before-the-answer"])
async def test_the_successor_of_a_killed_operator_leaves_what_one_leaves_that_never_died(
    jobs: Jobs, carried_out: bool
) -> None:
    reference = await lived(jobs, "whole")
    expected = await reference.outcome()
    assert expected["pods"] == ["-0-0", "-1-1", "-2-1"]
    assert expected["restarts"] == {"failures": 1, "disruptions": 1, "resizes": 1}
    assert reference.writes < WRITES
    for moment in range(1, reference.writes + 1):
        life = await lived(jobs, f"dies-{moment}", dies_at=moment, carried_out=carried_out)
        assert await life.outcome() == expected, f"killed at write {moment}"
        assert life.told <= reference.told, f"killed at write {moment}"
    assert {pod["metadata"]["labels"][LABEL_JOB_UID] for pod in await jobs.children()} == {
        job["metadata"]["uid"] for job in (await jobs.port.list(JOBS, namespace=jobs.namespace)).items
    }
