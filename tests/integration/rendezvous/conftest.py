"""The four backends on real servers, and servers that do not answer."""

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.etcd_server import EtcdServer
from tests.integration.rendezvous.harness import (
    EtcdHarness,
    EtcdV2Harness,
    Harness,
    KubernetesHarness,
    MemoryHarness,
)
from tests.integration.rendezvous.servers import BlackHole, ClosedPort, Forwarder, SilentServer, TalkativeServer


@pytest.fixture(scope="session")
def rendezvous_namespace(control_plane: Cluster) -> Iterator[str]:
    """One namespace for all tests here: making one for each would take most of their time."""
    with control_plane.namespace() as name:
        yield name


def _make_harness(name: str, request: pytest.FixtureRequest) -> Harness:
    if name == "kubernetes":
        return KubernetesHarness(
            request.getfixturevalue("control_plane"), request.getfixturevalue("rendezvous_namespace")
        )
    if name == "etcd":
        return EtcdHarness(request.getfixturevalue("etcd_v3"))
    if name == "etcd-v2":
        return EtcdV2Harness(request.getfixturevalue("etcd_v2"))
    return MemoryHarness()


@pytest.fixture(params=["memory", "kubernetes", "etcd", "etcd-v2"])
def harness(request: pytest.FixtureRequest) -> Harness:
    """Each backend in turn."""
    return _make_harness(request.param, request)


@pytest.fixture(params=["kubernetes", "etcd", "etcd-v2"])
def server_harness(request: pytest.FixtureRequest) -> Harness:
    """Each backend that talks to a server."""
    return _make_harness(request.param, request)


@pytest.fixture(params=[ClosedPort, BlackHole, SilentServer, TalkativeServer])
def unusable_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The endpoint of a server that gives no answer: refused, lost, silent, or in another language."""
    with request.param() as server:
        yield server.endpoint


@pytest.fixture
def forwarder() -> Iterator[type[Forwarder]]:
    """Makes forwarders from `[::1]`; those that were started are stopped at the end."""
    with Forwarder.all_stopped():
        yield Forwarder


@pytest.fixture
def kubernetes_harness(control_plane: Cluster, rendezvous_namespace: str) -> KubernetesHarness:
    """The ConfigMap backend alone."""
    return KubernetesHarness(control_plane, rendezvous_namespace)


@pytest.fixture
def etcd_harness(etcd_v3: EtcdServer) -> EtcdHarness:
    """The etcd v3 backend alone."""
    return EtcdHarness(etcd_v3)


@pytest.fixture
def etcd_v2_harness(etcd_v2: EtcdServer) -> EtcdV2Harness:
    """The etcd v2 backend alone."""
    return EtcdV2Harness(etcd_v2)
