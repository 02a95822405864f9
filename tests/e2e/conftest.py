"""Fixtures of the end-to-end tests: one cluster and one installation for all, a namespace for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.etcd import Certificates
from tests.cluster.image_sets import PYTHON_IMAGE, operator_image, operator_image_name, python_image
from tests.cluster.locks import exclusive
from tests.cluster.network import CONTROL_PLANE_ADDRESS
from tests.e2e.space import Space
from tests.e2e.suite import RELEASE, Suite

_OTHERS_SECONDS = 3600.0


@pytest.fixture(scope="session")
def suite(full_cluster: Cluster, torch_packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """The cluster with the operator in it, installed anew from this source tree; one test run at a time."""
    with exclusive("operator", timeout=_OTHERS_SECONDS, waiting_for="other tests that install the operator"):
        full_cluster.mend()
        full_cluster.load_image(python_image())
        full_cluster.load_image(operator_image())
        made = Suite(
            cluster=full_cluster,
            operator_image=operator_image_name(),
            image=PYTHON_IMAGE,
            torch=torch_packages,
            etcd=Certificates.issue(tmp_path_factory.mktemp("etcd"), host=CONTROL_PLANE_ADDRESS),
        )
        made.uninstall(RELEASE)
        made.install(RELEASE)
        yield made
        made.uninstall(RELEASE)


@pytest.fixture
def space(suite: Suite) -> Iterator[Space]:
    """A namespace that admits restricted pods only."""
    with suite.cluster.namespace(restricted=True) as name:
        made = Space(suite.kubectl, name)
        yield made
        suite.forget_volumes(made)
