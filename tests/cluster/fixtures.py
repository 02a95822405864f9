"""The pytest plugin: clusters and etcd servers as fixtures, started by the first test that asks for one.

What a fixture starts, its tear-down ends; a cluster that was up before is used and left as it was. Should a test
process be killed, the next one that starts a cluster removes what it left (see `cleanup.prune`).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cluster import cluster as clusters
from tests.cluster.cleanup import prune
from tests.cluster.cluster import Cluster
from tests.cluster.etcd_server import EtcdServer, etcd_server
from tests.cluster.kept_logs import own_records, report
from tests.cluster.locks import exclusive
from tests.cluster.state import CONTROL_PLANE, FULL
from tests.cluster.torch_packages import torch_site_packages

_SLOW_FIXTURES = frozenset({"control_plane", "etcd_v2", "etcd_v3", "full_cluster", "namespace", "torch_packages"})
_TEST_SECONDS = 180
_OTHERS_SECONDS = 3600.0


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Count a test's own time only: the first one to use a cluster may have to build and start it."""
    for item in items:
        uses = set(getattr(item, "fixturenames", ()))
        if uses & _SLOW_FIXTURES and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TEST_SECONDS, func_only=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the logs of this process's clusters when a test fails, and say where they are."""
    made = yield
    if made.failed and (records := own_records()):
        made.sections.append(("clusters", report(records)))
    return made


def sole_use_of_nodes() -> AbstractContextManager[None]:
    """Hold the machine's one place for a cluster with nodes; other test processes wait for it."""
    return exclusive("nodes", timeout=_OTHERS_SECONDS, waiting_for="other tests that need a cluster with nodes")


def _own_name(kind: str) -> str:
    return f"{kind}-{os.getpid()}"


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """An API server with etcd and controller-manager, one per test process; no nodes."""
    prune()
    cluster = clusters.up(level=CONTROL_PLANE, name=_own_name("api"), owned=True)
    try:
        yield cluster
    finally:
        clusters.down(cluster.name)


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """A namespace of its own for one test, on `control_plane`."""
    with control_plane.namespace() as name:
        yield name


@pytest.fixture(scope="session")
def etcd_v3() -> Iterator[EtcdServer]:
    """A current etcd (v3 API only)."""
    prune()
    with etcd_server(_own_name("etcd3"), v2=False) as server:
        yield server


@pytest.fixture(scope="session")
def etcd_v2() -> Iterator[EtcdServer]:
    """Debian's etcd 3.4 with the v2 API."""
    prune()
    with etcd_server(_own_name("etcd2"), v2=True) as server:
        yield server


@pytest.fixture(scope="session")
def full_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two nodes that run pods, Services and names. A full cluster that is up already is reused and left running."""
    # First of all: a cluster of a test run that was killed is up and healthy, and may be in any state.
    prune()
    running = clusters.find_full()
    if running is not None:
        yield running
        return
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
        pytest.fail("several test processes cannot share a cluster that one of them starts: run with -n 0, or up first")
    with sole_use_of_nodes():
        cluster = clusters.up(level=FULL, name=_own_name("e2e"), owned=True)
        try:
            yield cluster
        finally:
            clusters.down(cluster.name)


@pytest.fixture(scope="session")
def torch_packages() -> Path:
    """A directory with the newest torch, numpy and scikit-learn, for pods to mount or a process to have on its path."""
    return torch_site_packages()
