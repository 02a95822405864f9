"""What only the ConfigMap backend has to do, on a real API server."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes.config import incluster_config

from elasticjob.rendezvous.backends import create_backend, kubernetes_client
from elasticjob.rendezvous.backends.kubernetes import KubernetesRendezvousBackend
from elasticjob.rendezvous.backends.kubernetes_objects import Conflict, ThrottledError
from elasticjob.rendezvous.backends.kubernetes_store import ConfigMapStore
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousStateError
from elasticjob.rendezvous.parameters import RendezvousParameters
from tests.cluster.cluster import Cluster
from tests.integration.rendezvous.harness import KubernetesHarness
from tests.integration.rendezvous.servers import answering

BUSY = '{"kind": "Status", "message": "too busy"}'


def body_of(harness: KubernetesHarness, run_id: str) -> dict[str, Any]:
    body = harness.config_maps.read(harness.object_name(run_id))
    assert body is not None
    return body


def test_the_run_id_is_kept_for_people(kubernetes_harness: KubernetesHarness) -> None:
    kubernetes_harness.backend("team/exp 1").set_state(b"x")
    body = body_of(kubernetes_harness, "team/exp 1")
    assert body["metadata"]["annotations"]["elasticjob.dev/run-id"] == "team/exp 1"
    assert body["metadata"]["name"].startswith("elasticjob-rendezvous-team-exp-1-")


def test_labels_owners_and_foreign_data_outlive_a_write(kubernetes_harness: KubernetesHarness) -> None:
    owner = kubernetes_harness.config_maps.create({"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    backend = KubernetesRendezvousBackend(
        kubernetes_harness.config_maps,
        "run",
        name="demo-rendezvous",
        labels={"elasticjob.dev/job-name": "demo"},
        owner_references=[reference],
    )
    assert backend.set_state(b"x") is not None
    patch = {"metadata": {"annotations": {"note": "by hand"}, "labels": {"team": "a"}}, "data": {"other": "kept"}}
    kubernetes_harness.core.patch_namespaced_config_map("demo-rendezvous", kubernetes_harness.namespace, patch)
    stored = backend.get_state()
    assert stored is not None
    result = backend.set_state(b"y", stored[1])
    assert result is not None
    assert result[2]
    body = kubernetes_harness.config_maps.read("demo-rendezvous")
    assert body is not None
    assert body["metadata"]["labels"] == {"elasticjob.dev/job-name": "demo", "team": "a"}
    assert body["metadata"]["annotations"]["note"] == "by hand"
    assert body["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert body["data"] == {"other": "kept"}


def test_a_change_by_somebody_else_uses_up_the_token(kubernetes_harness: KubernetesHarness) -> None:
    backend = kubernetes_harness.backend("run")
    result = backend.set_state(b"x")
    assert result is not None
    kubernetes_harness.core.patch_namespaced_config_map(
        kubernetes_harness.object_name("run"), kubernetes_harness.namespace, {"metadata": {"labels": {"a": "b"}}}
    )
    refused = backend.set_state(b"y", result[1])
    assert refused is not None
    assert refused[0] == b"x"
    assert refused[2] is False


def test_the_server_itself_refuses_the_resource_version_of_an_object_that_was_made_anew(
    kubernetes_harness: KubernetesHarness,
) -> None:
    backend = kubernetes_harness.backend("run")
    backend.set_state(b"x")
    old = body_of(kubernetes_harness, "run")
    kubernetes_harness.remove("run")
    backend.set_state(b"x")
    new = body_of(kubernetes_harness, "run")
    forged = {**old, "metadata": {**old["metadata"], "resourceVersion": new["metadata"]["resourceVersion"]}}
    with pytest.raises(Conflict):
        kubernetes_harness.config_maps.replace(forged)


def test_the_same_run_id_in_two_namespaces_is_two_runs(kubernetes_harness: KubernetesHarness, namespace: str) -> None:
    ours = kubernetes_harness.backend("run")
    theirs = kubernetes_harness.backend("run", namespace=namespace)
    assert ours.set_state(b"ours") is not None
    assert theirs.get_state() is None
    theirs.set_state(b"theirs")
    stored = ours.get_state()
    assert stored is not None
    assert stored[0] == b"ours"


def account(cluster: Cluster, namespace: str, name: str, verbs: list[str]) -> Path:
    """The kubeconfig of a service account that may use these verbs on ConfigMaps."""
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}] if verbs else []
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name, "namespace": namespace}}
    cluster.kubectl.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        {**role, "kind": "Role", "rules": rules},
        {
            **role,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    )
    return cluster.service_account_kubeconfig(namespace, name)


def test_get_create_and_update_are_all_the_rights_a_worker_needs(
    kubernetes_harness: KubernetesHarness, control_plane: Cluster, namespace: str
) -> None:
    kubeconfig = account(control_plane, namespace, "worker", ["get", "create", "update"])
    backend, store = kubernetes_harness.make("run", kubeconfig=str(kubeconfig), namespace=namespace)
    result = backend.set_state(b"x")
    assert result is not None
    assert backend.set_state(b"y", result[1]) is not None
    store.set("a", "1")
    assert store.add("n", 2) == 2
    assert store.get("a") == b"1"


def test_a_pod_uses_its_own_service_account_and_namespace(
    control_plane: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    account(control_plane, namespace, "worker", ["get", "create", "update"])
    mounted = {
        "token": control_plane.kubectl("-n", namespace, "create", "token", "worker").strip(),
        "ca.crt": control_plane.authority.read_text(),
        "namespace": namespace,
    }
    for name, content in mounted.items():
        (tmp_path / name).write_text(content)
    server = urlsplit(control_plane.server)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(kubernetes_client, "NAMESPACE_FILE", tmp_path / "namespace")
    backend, _ = create_backend("kubernetes", RendezvousParameters("kubernetes", "", "run", 1, 1))
    result = backend.set_state(b"x")
    assert result is not None
    assert backend.set_state(b"y", result[1]) is not None


def test_missing_rights_are_an_error_that_names_object_server_and_reason(
    kubernetes_harness: KubernetesHarness, control_plane: Cluster, namespace: str
) -> None:
    kubeconfig = account(control_plane, namespace, "stranger", [])
    backend = kubernetes_harness.backend("run", kubeconfig=str(kubeconfig), namespace=namespace)
    for call in (backend.get_state, lambda: backend.set_state(b"x")):
        with pytest.raises(RendezvousConnectionError) as raised:
            call()
        for part in (f"{namespace}/elasticjob-rendezvous-run-", control_plane.server, "403", "cannot"):
            assert part in str(raised.value)


def test_a_namespace_that_does_not_exist_is_named(kubernetes_harness: KubernetesHarness) -> None:
    backend = kubernetes_harness.backend("run", namespace="nowhere")
    assert backend.get_state() is None
    with pytest.raises(RendezvousConnectionError, match='namespaces "nowhere" not found'):
        backend.set_state(b"x")


def test_an_object_that_the_server_finds_too_large_is_a_state_error(kubernetes_harness: KubernetesHarness) -> None:
    backend = kubernetes_harness.backend("run")
    result = backend.set_state(b"x")
    assert result is not None
    patch = {"data": {"other": "y" * 900_000}}
    kubernetes_harness.core.patch_namespaced_config_map(
        kubernetes_harness.object_name("run"), kubernetes_harness.namespace, patch
    )
    stored = backend.get_state()
    assert stored is not None
    with pytest.raises(RendezvousStateError, match=r"elasticjob-rendezvous-run-.*422"):
        backend.set_state(b"z" * 900_000, stored[1])


def test_a_store_that_grows_too_large_is_refused_with_the_limit(kubernetes_harness: KubernetesHarness) -> None:
    store = kubernetes_harness.store("run")
    assert isinstance(store, ConfigMapStore)
    store.set("a", b"x" * 600_000)
    with pytest.raises(RendezvousStateError, match="1200000 bytes of store values, at most 1000000"):
        store.set("b", b"x" * 600_000)
    assert not store.check(["b"])


def test_being_throttled_is_an_error_that_says_when_to_come_back(kubernetes_harness: KubernetesHarness) -> None:
    with answering(429, BUSY, {"Retry-After": "7"}) as (url, requests):
        backend = kubernetes_harness.backend("run", endpoint=url)
        with pytest.raises(ThrottledError, match=rf"{url}.*429.*too busy.*retry after 7 s") as raised:
            backend.set_state(b"x")
    assert raised.value.retry_after == 7
    assert requests == ["POST"]


@pytest.mark.parametrize("status", [401, 500, 503, 504])
def test_a_failing_server_is_asked_once(kubernetes_harness: KubernetesHarness, status: int) -> None:
    with answering(status, BUSY) as (url, requests):
        backend = kubernetes_harness.backend("run", endpoint=url)
        with pytest.raises(RendezvousConnectionError, match=rf"{url}.*{status}.*too busy"):
            backend.get_state()
    assert requests == ["GET"]


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", '{"metadata": null}'])
def test_an_answer_that_is_no_object_is_a_connection_error(kubernetes_harness: KubernetesHarness, text: str) -> None:
    with answering(200, text) as (url, _):
        backend = kubernetes_harness.backend("run", endpoint=url)
        for call in (backend.get_state, lambda: backend.set_state(b"x")):
            with pytest.raises(RendezvousConnectionError, match=url):
                call()
