"""Worker pods as a real API server takes them, in a namespace that enforces the restricted pod security profile."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from elasticjob.operator.model import ElasticJob
from elasticjob.operator.pods import build_pod, build_service, selector, state_config_map_metadata
from tests.cluster.cluster import Cluster
from tests.unit.crds.schema import PATH
from tests.unit.operator.test_pods import RICH, missing
from tests.unit.operator.world import FACTS

Body = dict[str, Any]
COMPLYING: Body = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
TLS = replace(FACTS, ca_bundle="-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")


@pytest.fixture
def restricted(control_plane: Cluster) -> Iterator[str]:
    control_plane.kubectl("apply", "--server-side", "-f", str(PATH))
    control_plane.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticjob.dev", "--timeout=30s")
    with control_plane.namespace(restricted=True) as name:
        yield name


def complying() -> Body:
    """A template that uses much of what there is and meets the profile."""
    users = copy.deepcopy(RICH)
    del users["metadata"]["futureMeta"]
    for name in ("futureField", "priorityClassName", "serviceAccountName", "affinity"):
        del users["spec"][name]
    for container in (*users["spec"]["containers"], *users["spec"]["initContainers"]):
        container["securityContext"] = dict(COMPLYING)
    del users["spec"]["containers"][1]["futureProbe"]
    users["spec"]["initContainers"][1].pop("restartPolicy")
    return users


def stored_job(cluster: Cluster, namespace: str, template: Body) -> ElasticJob:
    cluster.kubectl.apply(
        {
            "apiVersion": "elasticjob.dev/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": "digits", "namespace": namespace},
            "spec": {"replicas": 2, "template": template},
        }
    )
    return ElasticJob.from_dict(cluster.kubectl.json("-n", namespace, "get", "ej", "digits"))


def created(cluster: Cluster, namespace: str, body: Any, kind: str) -> Body:
    cluster.kubectl.apply(dict(body))
    found: Body = cluster.kubectl.json("-n", namespace, "get", kind, body["metadata"]["name"])
    return found


def test_a_pod_with_everything_that_is_added_is_admitted_and_the_users_fields_arrive(
    control_plane: Cluster, restricted: str
) -> None:
    users = complying()
    job = stored_job(control_plane, restricted, users)
    assert job.spec is not None
    pod = created(control_plane, restricted, build_pod(job, job.spec, TLS, index=0, attempt=0), "pod")
    assert missing(users, pod) == []
    names = [container["name"] for container in pod["spec"]["initContainers"]]
    assert names == ["first", "second", "elasticjob-inject"]


def test_a_plain_template_as_root_gets_an_init_container_that_is_not(control_plane: Cluster, namespace: str) -> None:
    control_plane.kubectl("apply", "--server-side", "-f", str(PATH))
    template = {
        "spec": {"securityContext": {"runAsUser": 0}, "containers": [{"name": "worker", "image": "registry.local/t:1"}]}
    }
    job = stored_job(control_plane, namespace, template)
    assert job.spec is not None
    pod = created(control_plane, namespace, build_pod(job, job.spec, FACTS, index=0, attempt=0), "pod")
    assert pod["spec"]["initContainers"][0]["securityContext"]["runAsUser"] == 65532


def test_children_are_collected_with_their_job(control_plane: Cluster, restricted: str) -> None:
    job = stored_job(control_plane, restricted, complying())
    assert job.spec is not None
    created(control_plane, restricted, build_pod(job, job.spec, FACTS, index=0, attempt=0), "pod")
    created(control_plane, restricted, build_service(job), "service")
    state = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": dict(state_config_map_metadata(job))}
    created(control_plane, restricted, state, "configmap")
    found = control_plane.kubectl.json("-n", restricted, "get", "pod,service,configmap", "-l", selector(job.uid))
    assert sorted(item["kind"] for item in found["items"]) == ["ConfigMap", "Pod", "Service"]
    control_plane.kubectl("-n", restricted, "delete", "ej", "digits", "--cascade=foreground", "--timeout=30s")
    left = control_plane.kubectl.json("-n", restricted, "get", "pod,service,configmap", "-l", selector(job.uid))
    assert left["items"] == []
