"""Operators against a real API server. There is no kubelet: a test that needs one patches the status of pods."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
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
