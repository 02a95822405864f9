"""One operator process for all situations, with a job of its own for each."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.integration.operator.operators import OperatorProcess, start_process
from tests.integration.reading.site import NODES, Site
from tests.unit.crds.schema import PATH


class Operators:
    """The operator process of a namespace, which can be killed and started anew."""

    def __init__(self, cluster: Cluster, namespace: str, port: int) -> None:
        self._cluster, self._namespace, self._port = cluster, namespace, port
        self._process: OperatorProcess | None = None
        self._started = 0

    def start(self) -> None:
        """Start another process."""
        self._started += 1
        variables = {
            "rendezvous_port": str(self._port),
            "rendezvous_endpoint": f"127.0.0.1:{self._port}",
            "rendezvous_tls": "false",
        }
        name = f"operator-{self._started}"
        self._process = start_process(self._cluster.kubeconfig, self._namespace, name, variables)

    def kill(self) -> None:
        """End it without notice."""
        if self._process is not None:
            self._process.kill()


@pytest.fixture(scope="module")
def reading_site(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Operators]]:
    """A namespace that an operator serves, and nodes in name."""
    control_plane.kubectl("apply", "--server-side", "-f", str(PATH))
    control_plane.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticjob.dev", "--timeout=30s")
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NODES]
    control_plane.kubectl.apply(*nodes)
    with control_plane.kubectl.namespace() as namespace, socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = int(reserved.getsockname()[1])
        reserved.close()
        operators = Operators(control_plane, namespace, port)
        operators.start()
        directory = tmp_path_factory.mktemp("tokens")
        try:
            yield Site(cluster=control_plane, namespace=namespace, port=port, directory=directory), operators
        finally:
            operators.kill()
            control_plane.kubectl("delete", "nodes", *NODES)


@pytest.fixture
def operators(reading_site: tuple[Site, Operators]) -> Operators:
    """The operator process."""
    return reading_site[1]


@pytest.fixture
def site(reading_site: tuple[Site, Operators]) -> Iterator[Site]:
    """The namespace, without any job before and after."""
    yield reading_site[0]
    reading_site[0].remove()


@pytest.fixture(scope="session")
def document() -> Path:
    """The document whose blocks are compared."""
    return PATH.parent.parent / "docs" / "reading-a-job.md"
