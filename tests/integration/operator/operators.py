"""What the tests of this directory use: operators in this process and as processes, and the jobs that they serve."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration

from elasticjob.operator.app import App, Parts
from elasticjob.operator.clock import SystemClock
from elasticjob.operator.cluster import Cluster as Port
from elasticjob.operator.cluster import Connect
from elasticjob.operator.constants import LABEL_JOB_UID
from elasticjob.operator.errors import NotFound
from elasticjob.operator.plan import plan
from elasticjob.operator.pods import OperatorFacts
from elasticjob.operator.ports import Body, Resource
from elasticjob.operator.resources import EVENTS, JOBS, LEASES, PODS
from elasticjob.operator.settings import Settings, variable
from elasticjob.rendezvous.endpoint import ServerEndpoint

LEASE = "elasticjob-operator"
LEASE_SECONDS = 6.0
FACTS = OperatorFacts(image="registry.local/elasticjob:1", endpoint=ServerEndpoint(host="rdzv", port=8443))


def connect_by(kubeconfig: Path) -> Connect:
    """The way to the API server by a kubeconfig file."""

    async def connect() -> Configuration:
        configuration = Configuration()
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=str(kubeconfig), client_configuration=configuration
        )
        return configuration

    return connect


def settings_for(namespace: str, **more: Any) -> Settings:
    """Settings of an operator that lives in a namespace and serves it alone; a short lease keeps tests short."""
    base = Settings(
        namespace=namespace,
        watch_namespaces=(namespace,),
        lease_duration_seconds=LEASE_SECONDS,
        health_port=0,
        rendezvous_endpoint="rdzv.local:8443",
        rendezvous_port=0,
    )
    return replace(base, **more)


class Operator:
    """An operator in this process."""

    def __init__(self, settings: Settings, connect: Connect) -> None:
        self.app = App(settings, Parts(clock=SystemClock(), planner=plan, facts=lambda: FACTS, connect=connect))

    async def leads(self) -> None:
        """Wait until it leads."""
        await eventually(lambda: self.app.leadership.epoch is not None, what="leadership")

    def count(self, verb: str, resource: str) -> int:
        """How many calls of that kind were answered."""
        return int(
            sum(
                sample.value
                for metric in self.app.metrics.registry.collect()
                for sample in metric.samples
                if sample.name == "elasticjob_api_calls_total"
                and (sample.labels["verb"], sample.labels["resource"]) == (verb, resource)
            )
        )


class OperatorProcess:
    """An operator as a process of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self.log = log

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it without notice, however it is."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)

    def wait(self, seconds: float) -> int:
        """Its exit status."""
        return self._process.wait(seconds)


def start_process(kubeconfig: Path, namespace: str, name: str, variables: Mapping[str, str]) -> OperatorProcess:
    """Start `python -m elasticjob.operator` for one namespace."""
    named = {
        "namespace": namespace,
        "watch_namespaces": namespace,
        "pod_name": name,
        "lease_duration_seconds": str(LEASE_SECONDS),
        "health_port": "0",
        "rendezvous_port": "0",
        "rendezvous_endpoint": "rdzv.local:8443",
        "log_level": "DEBUG",
        **variables,
    }
    environ = {variable(setting): value for setting, value in named.items()}
    log = kubeconfig.parent / f"{namespace}-{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "elasticjob.operator"],
            env={**os.environ, **environ, "KUBECONFIG": str(kubeconfig)},
            stdout=output,
            stderr=output,
        )
    return OperatorProcess(process, log)


class Jobs:
    """The jobs of one namespace and what belongs to them."""

    def __init__(self, port: Port, namespace: str) -> None:
        self.port = port
        self.namespace = namespace

    async def create(self, name: str = "digits", **spec: Any) -> Body:
        """Create a job."""
        whole = {"template": {"spec": {"containers": [{"name": "worker", "image": "i"}]}}, **spec}
        body = {
            "apiVersion": JOBS.api_version,
            "kind": "ElasticJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": whole,
        }
        return await self.port.create(JOBS, body, namespace=self.namespace)

    async def get(self, name: str = "digits") -> Body:
        """Read a job."""
        return await self.port.get(JOBS, namespace=self.namespace, name=name)

    async def delete(self, job: Body) -> None:
        """Delete a job."""
        meta = job["metadata"]
        await self.port.delete(JOBS, namespace=self.namespace, name=meta["name"], uid=meta["uid"])

    async def is_gone(self, name: str = "digits") -> bool:
        """Whether there is no such job."""
        try:
            await self.get(name)
        except NotFound:
            return True
        return False

    async def children(self, resource: Resource = PODS) -> list[Body]:
        """All children of one kind."""
        listed = await self.port.list(resource, namespace=self.namespace, label_selector=LABEL_JOB_UID)
        return list(listed.items)

    async def pod_names(self) -> list[str]:
        """The names of all pods."""
        return sorted(pod["metadata"]["name"] for pod in await self.children())

    async def condition(self, kind: str, name: str = "digits") -> Body:
        """One condition of a job; empty if it has none."""
        conditions = (await self.get(name)).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    async def events(self) -> list[Body]:
        """All Events of the namespace."""
        return list((await self.port.list(EVENTS, namespace=self.namespace)).items)

    async def holder(self) -> str:
        """Who leads the operators of this namespace; empty if nobody does."""
        try:
            lease = await self.port.get(LEASES, namespace=self.namespace, name=LEASE)
        except NotFound:
            return ""
        return str(lease["spec"].get("holderIdentity") or "")

    async def epoch(self) -> int:
        """The epoch in the lease."""
        lease = await self.port.get(LEASES, namespace=self.namespace, name=LEASE)
        return int(lease["spec"]["leaseTransitions"])


async def settled(count: Callable[[], int], *, quiet: float = 3.0) -> int:
    """Wait until a number has not changed for a while, and return it."""
    ends = time.monotonic() + 120.0
    while True:
        before = count()
        await asyncio.sleep(quiet)
        if count() == before:
            return before
        if time.monotonic() > ends:
            raise AssertionError(f"{count()} and still counting")


async def eventually(
    check: Callable[[], bool] | Callable[[], Awaitable[bool]], *, what: str, seconds: float = 120.0
) -> None:
    """Wait until something holds. The limit is for a machine that is busy otherwise, not what is to be expected."""
    ends = time.monotonic() + seconds
    while True:
        outcome = check()
        if outcome if isinstance(outcome, bool) else await outcome:
            return
        if time.monotonic() > ends:
            raise AssertionError(f"not within {seconds:g} seconds: {what}")
        await asyncio.sleep(0.05)
