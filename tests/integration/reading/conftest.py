"""One operator process for all situations, with a job of its own for each."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.integration.reading.processes import Operators
from tests.integration.reading.site import NODES, Site
from tests.unit.crds.schema import PATH


@pytest.fixture(scope="module")
def reading_site(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Operators]]:
    """A namespace that an operator serves, and nodes in name."""
    control_plane.kubectl("apply", "--server-side", "-f", str(PATH))
    control_plane.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticjob.dev", "--timeout=30s")
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NODES]
    control_plane.kubectl.apply(*nodes)
    with control_plane.namespace() as namespace, socket.socket() as reserved:
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
