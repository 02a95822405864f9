"""What a real API server says about the chart and the examples."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError

REPOSITORY = Path(__file__).resolve().parents[3]
DEFINITION = REPOSITORY / "crds" / "elasticjobs.yaml"
EXAMPLES = sorted(REPOSITORY.glob("examples/*/elasticjob.yaml"))
ACCOUNT = "elasticjob"

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]


@pytest.fixture
def restricted(control_plane: Cluster) -> Iterator[str]:
    with control_plane.namespace(restricted=True) as name:
        yield name


@pytest.fixture
def defined(control_plane: Cluster) -> None:
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(DEFINITION))
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=20s", "crd/elasticjobs.elasticjob.dev")


def dry_run(cluster: Cluster, objects: Objects, *flags: str) -> str:
    text = yaml.safe_dump_all(objects)
    return cluster.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", *flags, input=text)


def as_pod(template: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]}


def may(
    cluster: Cluster, account: str, verb: str, resource: str, *, subresource: str = "", namespace: str | None = None
) -> bool:
    """Whether an account may do something; `resource` as kubectl writes it, `/name` for one object only."""
    where = ["-n", namespace] if namespace else ["--all-namespaces"]
    if resource.startswith("/"):
        where = []
    try:
        said = cluster.kubectl(
            "auth", "can-i", verb, resource, f"--subresource={subresource}", f"--as={account}", *where
        )
    except ClusterError as error:
        if str(error).rstrip().endswith("no"):
            return False
        raise
    return said.strip() == "yes"


def test_the_api_server_accepts_every_object(control_plane: Cluster, namespace: str, render: Render) -> None:
    objects = render("replicaCount=2", "networkPolicy.enabled=true", "flowSchema.enabled=true", namespace=namespace)

    assert len(dry_run(control_plane, objects).splitlines()) == len(objects)


def test_the_operator_passes_the_restricted_profile(control_plane: Cluster, restricted: str, render: Render) -> None:
    objects = render(namespace=restricted)
    control_plane.kubectl.apply(*(one for one in objects if one["kind"] == "ServiceAccount"))
    deployment = next(one for one in objects if one["kind"] == "Deployment")

    assert "pod/pod" in dry_run(control_plane, [as_pod(deployment["spec"]["template"])], "-n", restricted)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_examples_are_admitted_and_their_pods_restricted(
    control_plane: Cluster, restricted: str, defined: None, example: Path
) -> None:
    job = yaml.safe_load(example.read_text())

    assert "elasticjob.elasticjob.dev/" in dry_run(control_plane, [job], "-n", restricted)
    assert "pod/pod" in dry_run(control_plane, [as_pod(job["spec"]["template"])], "-n", restricted)


def test_the_operator_may_do_its_work_and_nothing_else(
    control_plane: Cluster, namespace: str, defined: None, render: Render
) -> None:
    objects = render(namespace=namespace)
    account = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    control_plane.kubectl.apply(*(one for one in objects if "Role" in one["kind"]))

    assert may(control_plane, account, "create", "pods")
    assert may(control_plane, account, "update", "elasticjobs.elasticjob.dev", subresource="finalizers")
    assert may(control_plane, account, "create", "tokenreviews.authentication.k8s.io")
    assert may(control_plane, account, "get", "/openid/v1/jwks")
    assert may(control_plane, account, "update", "leases.coordination.k8s.io/elasticjob", namespace=namespace)
    assert not may(control_plane, account, "update", "leases.coordination.k8s.io/another", namespace=namespace)
    for resource in ("secrets", "serviceaccounts", "roles.rbac.authorization.k8s.io", "nodes"):
        for verb in ("list", "create"):
            assert not may(control_plane, account, verb, resource)
    assert not may(control_plane, account, "create", "pods", subresource="exec")
    control_plane.kubectl("delete", "clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/name=elasticjob")


def test_a_namespaced_operator_may_do_nothing_elsewhere(
    control_plane: Cluster, namespace: str, restricted: str, defined: None, render: Render
) -> None:
    objects = render("scope=namespace", f"watchNamespaces={{{restricted}}}", namespace=namespace)
    account = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    control_plane.kubectl.apply(*(one for one in objects if "Role" in one["kind"]))

    assert may(control_plane, account, "create", "pods", namespace=restricted)
    assert not may(control_plane, account, "list", "pods", namespace=namespace)
    assert not may(control_plane, account, "list", "elasticjobs.elasticjob.dev")
    # Every service account may read the cluster's token keys, so that callers can be told from one another.
    account_groups = "--as-group=system:serviceaccounts"
    said = control_plane.kubectl("auth", "can-i", "get", "/openid/v1/jwks", f"--as={account}", account_groups)
    assert said.strip() == "yes"
