"""The keys that a real API server publishes verify the tokens that it issues."""

from elasticjob.operator.cluster import Cluster as Port
from elasticjob.operator.constants import TOKEN_AUDIENCE
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.server.auth import Authenticator
from tests.cluster.cluster import Cluster
from tests.integration.operator.operators import connect_by


async def test_a_token_of_a_pod_is_verified_without_asking_for_it(control_plane: Cluster, namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "worker", "namespace": namespace},
        "spec": {"containers": [{"name": "worker", "image": "none"}]},
    }
    control_plane.kubectl.apply(pod)
    uid = control_plane.kubectl.json("-n", namespace, "get", "pod", "worker")["metadata"]["uid"]
    bound = ("--bound-object-kind=Pod", "--bound-object-name=worker", f"--bound-object-uid={uid}")
    token = control_plane.kubectl("-n", namespace, "create", "token", "default", f"--audience={TOKEN_AUDIENCE}", *bound)
    metrics = Metrics()
    port = Port(await connect_by(control_plane.kubeconfig)(), timeout=10.0, metrics=metrics)

    try:
        caller = await Authenticator(port).identify(token.strip())
    finally:
        await port.close()

    assert (caller.namespace, caller.pod, caller.pod_uid) == (namespace, "worker", uid)
    calls = {
        (sample.labels["verb"], sample.labels["resource"])
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "elasticjob_api_calls_total"
    }
    assert calls == {("get", "raw")}
