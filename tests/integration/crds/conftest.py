"""The definition on a real API server."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.unit.crds.schema import PATH

Body = dict[str, Any]
Apply = Callable[..., Body]


@pytest.fixture(scope="session")
def api(control_plane: Cluster) -> Cluster:
    """An API server that knows ElasticJobs."""
    control_plane.kubectl("apply", "--server-side", "-f", str(PATH))
    control_plane.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticjob.dev", "--timeout=30s")
    return control_plane


@pytest.fixture
def apply(api: Cluster, namespace: str) -> Apply:
    """Create or change a job and return what was stored."""

    def apply_job(name: str = "digits", **spec: Any) -> Body:
        api.kubectl.apply(manifest(namespace, name, **spec))
        stored: Body = api.kubectl.json("-n", namespace, "get", "ej", name)
        return stored

    return apply_job


@pytest.fixture
def refusal(apply: Apply) -> Callable[..., str]:
    """Why a job is refused."""

    def why(name: str = "digits", **spec: Any) -> str:
        with pytest.raises(ClusterError) as refused:
            apply(name, **spec)
        return str(refused.value)

    return why


def manifest(namespace: str, name: str, **spec: Any) -> Body:
    container = {"name": "worker", "image": "registry.local/train:1"}
    whole = {"template": {"spec": {"containers": [container]}}, **spec}
    return {
        "apiVersion": "elasticjob.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {field: value for field, value in whole.items() if value is not None},
    }
