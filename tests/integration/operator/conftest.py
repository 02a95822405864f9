"""Operators against a real API server. There is no kubelet: a test that needs one patches the status of pods."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio.client.configuration import Configuration

from elasticjob.operator.cluster import Cluster as Port
from elasticjob.operator.cluster import Connect
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.settings import Settings
from tests.cluster.cluster import Cluster
from tests.integration.operator.operators import (
    Jobs,
    Operator,
    OperatorProcess,
    connect_by,
    settings_for,
    start_process,
)
from tests.integration.reading.processes import Operators
from tests.integration.reading.site import NODES, Site
from tests.unit.crds.schema import PATH


@pytest.fixture(scope="session")
def api(control_plane: Cluster) -> Cluster:
    """An API server that knows ElasticJobs."""
    control_plane.kubectl("apply", "--server-side", "-f", str(PATH))
    control_plane.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticjob.dev", "--timeout=30s")
    return control_plane


@pytest.fixture
def connect(api: Cluster) -> Connect:
    """The way to the API server as somebody who may do everything."""
    return connect_by(api.kubeconfig)


@pytest.fixture
async def port(connect: Connect) -> AsyncIterator[Port]:
    """The operator's own port to the API server, for the test's use."""
    configuration: Configuration = await connect()
    port = Port(configuration, timeout=10, metrics=Metrics())
    yield port
    await port.close()


@pytest.fixture
def jobs(api: Cluster, port: Port, namespace: str) -> Jobs:
    """The jobs of the test's namespace."""
    return Jobs(port, namespace)


@pytest.fixture
def settings(namespace: str) -> Settings:
    """Settings of an operator for the test's namespace alone."""
    return settings_for(namespace)


@pytest.fixture
async def operator(settings: Settings, connect: Connect) -> AsyncIterator[Operator]:
    """An operator that leads."""
    async with running(Operator(settings, connect)) as operator:
        await operator.leads()
        yield operator


@contextlib.asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[Operator]:
    """Run an operator for the time of the block."""
    task = asyncio.create_task(operator.app.run())
    try:
        yield operator
    finally:
        operator.app.stop()
        await asyncio.wait_for(task, 20)


@pytest.fixture
def processes(api: Cluster, namespace: str) -> Iterator[Any]:
    """Starts operators as processes of their own, to be killed."""
    started: list[OperatorProcess] = []

    def start(name: str, **variables: str) -> OperatorProcess:
        process = start_process(api.kubeconfig, namespace, name, variables)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def played_site(api: Cluster, namespace: str, tmp_path: Path) -> Iterator[tuple[Site, Operators]]:
    """A namespace with machines in name, an operator process that hosts the rendezvous, and a kubelet to be played."""
    machines = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NODES]
    api.kubectl.apply(*machines)
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = int(reserved.getsockname()[1])
    operators = Operators(api, namespace, port)
    operators.start()
    site = Site(cluster=api, namespace=namespace, port=port, directory=tmp_path)
    try:
        yield site, operators
        site.remove()
    finally:
        operators.kill()


@pytest.fixture
def site(played_site: tuple[Site, Operators]) -> Site:
    """The namespace with its job."""
    return played_site[0]


@pytest.fixture
def operators(played_site: tuple[Site, Operators]) -> Operators:
    """The operator of that namespace."""
    return played_site[1]
