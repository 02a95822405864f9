"""The cluster that the other tests of this folder stand on: pods talk, names resolve, tokens count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.image_sets import PYTHON_IMAGE, python_image

AUDIENCE = "elasticjob.dev"
# Asked in the first pod: the headless service, the second pod by name and through a Service, and the API server. That
# a pod is ready reaches names and packet rules a moment later.
QUESTIONS = """
import json, socket, ssl, time, urllib.error, urllib.request
deadline = time.monotonic() + 50
home = "/var/run/secrets/kubernetes.io/serviceaccount/"
context = ssl.create_default_context(cafile=home + "ca.crt")
token = {"Authorization": "Bearer " + open(home + "token").read()}
def get(url, headers={}):
    request = urllib.request.Request(url, headers=headers)
    while True:
        try:
            return urllib.request.urlopen(request, timeout=10, context=context).read().decode().strip()
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)
print(json.dumps({
    "addresses": sorted({found[4][0] for found in socket.getaddrinfo("mesh", 80)}),
    "by name": get("http://second.mesh:8000/hostname"),
    "by service": get("http://second/hostname"),
    "api": json.loads(get("https://kubernetes.default.svc/api", token))["kind"],
}))
"""


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def pod(name: str, node: str) -> dict[str, Any]:
    """A web server that passes the restricted profile; its readiness probe never succeeds for the first pod."""
    probe = {"httpGet": {"port": 8000, "path": "/hostname"}} if name == "second" else {"exec": {"command": ["false"]}}
    container = {
        "name": "main",
        "image": PYTHON_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", "-m", "http.server", "8000", "--directory", "/etc"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "identity", "mountPath": "/identity"}],
        "readinessProbe": probe,
    }
    token = {"serviceAccountToken": {"path": "token", "audience": AUDIENCE, "expirationSeconds": 600}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "mesh", "name": name}},
        "spec": {
            "nodeName": node,
            "hostname": name,
            "subdomain": "mesh",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "identity", "projected": {"sources": [token]}}],
        },
    }


@pytest.fixture(scope="module")
def place(full_cluster: Cluster) -> Iterator[str]:
    """A namespace under the restricted profile with two pods on two nodes, of which only the second is ready."""
    full_cluster.load_image(python_image())
    objects = [
        service("mesh", clusterIP="None", publishNotReadyAddresses=True, selector={"app": "mesh"}),
        service("second", selector={"name": "second"}, ports=[{"port": 80, "targetPort": 8000}]),
        pod("first", full_cluster.nodes[0]),
        pod("second", full_cluster.nodes[-1]),
    ]
    kubectl = full_cluster.kubectl
    with full_cluster.namespace(restricted=True) as namespace:
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(items))
        kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/second", "--timeout=120s", timeout=130)
        kubectl(
            "-n",
            namespace,
            "wait",
            "--for=jsonpath={.status.phase}=Running",
            "pod/first",
            "--timeout=120s",
            timeout=130,
        )
        yield namespace


def test_all_nodes_are_ready(full_cluster: Cluster) -> None:
    nodes = full_cluster.kubectl.json("get", "nodes")["items"]
    assert [node["metadata"]["name"] for node in nodes] == list(full_cluster.nodes)
    full_cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=30s")


def test_pods_reach_each_other_services_names_and_the_api(full_cluster: Cluster, place: str) -> None:
    command = ("-n", place, "exec", "-i", "first", "--", "python", "-")
    answers = json.loads(full_cluster.kubectl(*command, input=QUESTIONS))
    pods = full_cluster.kubectl.json("-n", place, "get", "pods")["items"]
    assert answers == {
        "addresses": sorted(one["status"]["podIP"] for one in pods),
        "by name": "second",
        "by service": "second",
        "api": "APIVersions",
    }
    assert "GET /hostname" in full_cluster.kubectl("-n", place, "logs", "second")


def test_a_projected_token_tells_which_pod_shows_it(full_cluster: Cluster, place: str) -> None:
    token = full_cluster.kubectl("-n", place, "exec", "first", "--", "cat", "/identity/token")
    spec = {"token": token, "audiences": [AUDIENCE]}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    said = json.loads(full_cluster.kubectl("create", "-o", "json", "-f", "-", input=json.dumps(review)))
    assert said["status"]["audiences"] == [AUDIENCE]
    assert said["status"]["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["first"]


def test_the_restricted_profile_is_enforced(full_cluster: Cluster, place: str) -> None:
    with pytest.raises(ClusterError, match="violates PodSecurity"):
        full_cluster.kubectl("-n", place, "run", "refused", f"--image={PYTHON_IMAGE}")
