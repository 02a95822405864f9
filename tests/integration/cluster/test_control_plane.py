"""The control plane of the tests: a real API server that is ready, guards what it serves, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import cluster as clusters
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.etcd_server import EtcdServer
from tests.cluster.kubectl import Kubectl
from tests.cluster.paths import REPOSITORY
from tests.cluster.processes import CLUSTER_TAG, tagged, wait_until
from tests.cluster.state import CONTROL_PLANE, cluster_directory, load


def test_it_is_ready_and_tells_its_version(control_plane: Cluster) -> None:
    assert control_plane.kubectl("get", "--raw", "/readyz") == "ok"
    assert control_plane.kubectl.json("version")["serverVersion"]["gitVersion"].startswith("v1.")


def test_namespaces_have_names_of_their_own_and_go_away(control_plane: Cluster) -> None:
    with control_plane.namespace() as first, control_plane.namespace() as second:
        assert first != second
    wait_until(
        lambda: not control_plane.kubectl.exists("namespace", first, second),
        what="namespaces to be gone",
        timeout=90,
        poll=0.5,
    )


def test_rbac_decides_what_a_service_account_may_do(control_plane: Cluster, namespace: str) -> None:
    account = control_plane.service_account_kubeconfig(namespace, "default")
    limited = Kubectl(program=control_plane.kubectl.program, kubeconfig=account)
    with pytest.raises(ClusterError, match="forbidden"):
        limited("get", "secrets")
    subject = f"--serviceaccount={namespace}:default"
    control_plane.kubectl("-n", namespace, "create", "rolebinding", "v", "--clusterrole=admin", subject)
    assert "No resources found" not in limited("get", "configmaps", "-o", "name")


def test_a_user_has_the_rights_of_its_groups(control_plane: Cluster) -> None:
    path = control_plane.user_kubeconfig("someone", groups=["system:masters"])
    someone = Kubectl(program=control_plane.kubectl.program, kubeconfig=path)
    assert someone("auth", "can-i", "*", "*").strip() == "yes"


def test_owners_take_their_dependents_with_them(control_plane: Cluster, namespace: str) -> None:
    kubectl = control_plane.kubectl
    kubectl("-n", namespace, "create", "configmap", "owner")
    uid = kubectl.json("-n", namespace, "get", "configmap", "owner")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    metadata = {"name": "dependent", "namespace": namespace, "ownerReferences": [owner]}
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    kubectl("-n", namespace, "delete", "configmap", "owner")
    wait_until(
        lambda: not kubectl.exists("-n", namespace, "configmap/dependent"),
        what="dependent to be collected",
        timeout=90,
        poll=0.5,
    )


@pytest.mark.timeout(300, func_only=True)
def test_down_leaves_no_process_and_no_file() -> None:
    name = f"own-{os.getpid()}"
    cluster = clusters.up(level=CONTROL_PLANE, name=name, controllers=False, audit=True, owned=True)
    tags = cluster.record.tags
    try:
        with cluster.namespace() as namespace:
            cluster.kubectl("-n", namespace, "get", "configmaps")
        logged = [json.loads(line).get("objectRef", {}) for line in cluster.audit_log.read_text().splitlines()]
        assert any((one.get("resource"), one.get("namespace")) == ("configmaps", namespace) for one in logged)
        assert clusters.up(level=CONTROL_PLANE, name=name).record == cluster.record
        assert len(tagged(tags)) == 2
    finally:
        assert clusters.down(name)
    assert tagged(tags) == []
    assert not cluster_directory(name).exists()
    assert not clusters.down(name)


@pytest.mark.timeout(300, func_only=True)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    name = f"int-{os.getpid()}-{number.value}"
    tags = {CLUSTER_TAG: str(cluster_directory(name))}
    command = [sys.executable, "-m", "tests.cluster", "up", "--level", CONTROL_PLANE, "--name", name]
    said = tmp_path / "log"
    with (
        said.open("wb") as log,
        subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log) as starting,
    ):
        try:
            wait_until(lambda: bool(tagged(tags)), what="first process of the cluster", timeout=120)
            starting.send_signal(number)
            assert starting.wait(120) != 0, said.read_text()
        finally:
            starting.kill()
            starting.wait()
            clusters.down(name)
    assert "did not come up" in said.read_text()
    assert tagged(tags) == []


@pytest.mark.timeout(300, func_only=True)
def test_a_killed_start_is_cleared_by_down() -> None:
    name = f"crash-{os.getpid()}"
    tags = {CLUSTER_TAG: str(cluster_directory(name))}
    command = [sys.executable, "-m", "tests.cluster", "up", "--level", CONTROL_PLANE, "--name", name]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starting:
        try:
            wait_until(lambda: bool(tagged(tags)), what="first process of the cluster", timeout=120)
        finally:
            starting.kill()
    assert load(name) is not None
    assert clusters.find(name) is None
    assert clusters.down(name)
    assert tagged(tags) == []


@pytest.mark.parametrize("fixture", ["etcd_v2", "etcd_v3"])
def test_an_etcd_that_comes_back_is_at_the_same_place(request: pytest.FixtureRequest, fixture: str) -> None:
    server: EtcdServer = request.getfixturevalue(fixture)
    assert server.url == f"http://{server.host}:{server.port}"
    before = server.url
    server.stop()
    server.start()
    assert server.url == before
