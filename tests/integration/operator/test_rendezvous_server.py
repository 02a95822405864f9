"""The rendezvous half on a real API server: tokens that it signed, state in its ConfigMaps, fencing by its versions."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration

from elasticjob.operator.constants import TOKEN_AUDIENCE
from elasticjob.operator.elector import Leadership, Term
from elasticjob.operator.errors import NotLeader
from elasticjob.operator.hosting import HostContext
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.rendezvous_server import TLS_SECRET, HostedRendezvous, ServerParts, Trust
from elasticjob.operator.settings import from_environment
from elasticjob.rendezvous.client import HostedRendezvousClient
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.orders import CloseReason, NodeFacts, NodePhase, RunOrders, RunState, RunView
from elasticjob.rendezvous.protocol import LeaveOutcome
from tests.cluster.cluster import Cluster

RUN = "8f14e45f-0000-4000-8000-00000000000a"


class MonotonicClock:
    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> Any:
        raise NotImplementedError


def leading(epoch: int) -> Leadership:
    leadership = Leadership(MonotonicClock())
    leadership.extend(Term(epoch=epoch, ends=time.monotonic() + 600))
    return leadership


def pod(name: str) -> dict[str, Any]:
    container = {"name": "worker", "image": "registry.local/train:1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


@dataclass(kw_only=True)
class Site:
    """One namespace with worker pods, and operators that come and go."""

    cluster: Cluster
    namespace: str
    changes: list[tuple[str, str]] = field(default_factory=list)
    uids: dict[int, str] = field(default_factory=dict)
    tokens: dict[int, str] = field(default_factory=dict)

    def add_pods(self, count: int) -> None:
        for index in range(count):
            name = f"digits-{index}-0"
            self.cluster.kubectl("-n", self.namespace, "apply", "-f", "-", input=json.dumps(pod(name)))
            found = self.cluster.kubectl.json("-n", self.namespace, "get", "pod", name)
            self.uids[index] = found["metadata"]["uid"]
            self.tokens[index] = self.token(name, TOKEN_AUDIENCE)

    def token(self, pod_name: str, audience: str) -> str:
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod_name}", f"--audience={audience}")
        return str(self.cluster.kubectl("-n", self.namespace, "create", "token", "default", *bound)).strip()

    def orders(self, **changes: Any) -> RunOrders:
        nodes = {
            uid: NodeFacts(pod_uid=uid, pod=f"digits-{index}-0", index=index, phase=NodePhase.ALIVE)
            for index, uid in self.uids.items()
        }
        fields = {"run_id": RUN, "min_nodes": 1, "max_nodes": 8, "expected": frozenset(self.uids), "nodes": nodes}
        return RunOrders(namespace=self.namespace, job="digits", **{**fields, **changes})

    def state(self) -> Any:
        """The stored ConfigMap."""
        return self.cluster.kubectl.json("-n", self.namespace, "get", "configmap", "digits-rendezvous")


@dataclass(kw_only=True)
class Operator:
    """One operator process, as far as the rendezvous goes."""

    server: HostedRendezvous
    task: "asyncio.Task[None]"
    session: aiohttp.ClientSession

    async def call(self, path: str, body: object, *, token: str) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {token}", "Elasticjob-Protocol": "1"}
        url = f"http://127.0.0.1:{self.server.port}/v1/runs/{RUN}/{path}"
        async with self.session.post(url, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def join(self, token: str, **changes: Any) -> tuple[int, dict[str, Any]]:
        body = {"incarnation": "a", "address": "10.0.0.1", "pid": 1, "round": 0, "failure": None, "wait": 10, **changes}
        return await self.call("join", body, token=token)

    async def viewed(self, state: RunState) -> RunView:
        return await self.shown(lambda view: view.state is state and not view.failed)

    async def shown(self, is_so: Callable[[RunView], object]) -> RunView:
        """Wait until the view is as told."""
        async with asyncio.timeout(20):
            while True:
                view = self.server.view(RUN)
                if view is not None and is_so(view):
                    return view
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def operator(
    site: Site, *, epoch: int, kubeconfig: Path | None = None, trust: Trust | None = None
) -> AsyncIterator[Operator]:
    async def connect() -> Configuration:
        configuration = Configuration()
        await config.load_kube_config(str(kubeconfig or site.cluster.kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
        return configuration

    environment = {
        "ELASTICJOB_OPERATOR_NAMESPACE": site.namespace,
        "ELASTICJOB_OPERATOR_RENDEZVOUS_PORT": "0",
        "ELASTICJOB_OPERATOR_RENDEZVOUS_ENDPOINT": "127.0.0.1:1",
    }
    context = HostContext(
        settings=from_environment(environment),
        epoch=epoch,
        leadership=leading(epoch),
        on_change=lambda namespace, job: site.changes.append((namespace, job)),
    )
    server = HostedRendezvous(
        context, ServerParts(metrics=Metrics(), connect=connect, address="127.0.0.1", trust=trust)
    )
    stop, started = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(server.serve(stop, started=started.set))
    await asyncio.wait_for(started.wait(), 20)
    async with aiohttp.ClientSession() as session:
        try:
            yield Operator(server=server, task=task, session=session)
        finally:
            stop.set()
            await asyncio.gather(task, return_exceptions=True)


async def test_pods_join_by_their_own_tokens_and_the_round_is_in_a_config_map(
    control_plane: Cluster, namespace: str
) -> None:
    site = Site(cluster=control_plane, namespace=namespace)
    site.add_pods(2)
    async with operator(site, epoch=1) as leader:
        leader.server.apply(site.orders())
        await leader.viewed(RunState.WAITING)
        answers = await asyncio.gather(*(leader.join(token) for token in site.tokens.values()))
        assert [status for status, _ in answers] == [200, 200]
        assert [body["rank"] for _, body in answers] == [0, 1]
        stored = site.state()
        assert stored["metadata"]["labels"]["elasticjob.dev/job-uid"] == RUN
        assert stored["metadata"]["ownerReferences"][0]["uid"] == RUN
        assert (namespace, "digits") in site.changes


async def test_tokens_for_other_ears_and_other_pods_are_refused(control_plane: Cluster, namespace: str) -> None:
    site = Site(cluster=control_plane, namespace=namespace)
    site.add_pods(2)
    async with operator(site, epoch=1) as leader:
        stranger = site.uids.pop(1)
        leader.server.apply(site.orders())
        await leader.viewed(RunState.WAITING)
        status, body = await leader.join(site.token("digits-0-0", "https://kubernetes.default.svc"))
        assert (status, body["error"]["code"]) == (401, "unauthenticated")
        unbound = str(
            control_plane.kubectl("-n", namespace, "create", "token", "default", f"--audience={TOKEN_AUDIENCE}")
        )
        status, body = await leader.join(unbound.strip())
        assert (status, body["error"]["code"]) == (401, "unauthenticated")
        status, body = await leader.join(site.tokens[1])
        assert (status, body["error"]["code"]) == (404, "unknown-node"), stranger


async def test_a_new_leader_goes_on_and_the_old_one_falls_silent(control_plane: Cluster, namespace: str) -> None:
    site = Site(cluster=control_plane, namespace=namespace)
    site.add_pods(2)
    tokens = list(site.tokens.values())
    async with operator(site, epoch=1) as old, operator(site, epoch=2) as new:
        old.server.apply(site.orders())
        await old.viewed(RunState.WAITING)
        await asyncio.gather(*(old.join(token) for token in tokens))
        new.server.apply(site.orders())
        assert (await new.viewed(RunState.FORMED)).round == 1
        heartbeat = {"incarnation": "a", "round": 1, "endpoint": None}
        assert (await new.call("heartbeat", heartbeat, token=tokens[0]))[1]["evicted"] is False
        refused = await asyncio.gather(*(old.join(token, round=1, wait=2) for token in tokens))
        assert {status for status, _ in refused} == {503}
        outcome = await asyncio.gather(old.task, return_exceptions=True)
        assert isinstance(outcome[0], NotLeader)
        answers = await asyncio.gather(*(new.join(token, round=1) for token in tokens))
        assert {body["round"] for _, body in answers} == {2}


async def test_a_corrupt_state_is_named_and_left_alone(control_plane: Cluster, namespace: str) -> None:
    site = Site(cluster=control_plane, namespace=namespace)
    site.add_pods(1)
    async with operator(site, epoch=1) as leader:
        leader.server.apply(site.orders())
        await leader.viewed(RunState.WAITING)
    patch = json.dumps({"binaryData": {"state": "ISEhIQ=="}})
    control_plane.kubectl("-n", namespace, "patch", "configmap", "digits-rendezvous", "--type=merge", "-p", patch)
    before = site.state()
    async with operator(site, epoch=2) as leader:
        leader.server.apply(site.orders())
        view = await leader.shown(lambda view: view.failed)
        assert f"job {namespace}/digits" in view.failed
        leader.server.apply(site.orders(close=CloseReason.FAILED))
        await asyncio.sleep(0.2)
    assert site.state() == before


async def test_a_deleted_state_is_written_again_by_its_leader(control_plane: Cluster, namespace: str) -> None:
    site = Site(cluster=control_plane, namespace=namespace)
    site.add_pods(1)
    token = site.tokens[0]
    async with operator(site, epoch=1) as leader:
        leader.server.apply(site.orders())
        await leader.viewed(RunState.WAITING)
        await leader.join(token)
        control_plane.kubectl("-n", namespace, "delete", "configmap", "digits-rendezvous")
        status, body = await leader.join(token, round=1)
        assert (status, body["round"]) == (200, 2)
        assert site.state()["binaryData"]


async def test_the_state_of_an_earlier_job_of_the_same_name_is_not_taken_over(
    control_plane: Cluster, namespace: str
) -> None:
    site = Site(cluster=control_plane, namespace=namespace)
    site.add_pods(1)
    owner = {"apiVersion": "elasticjob.dev/v1alpha1", "kind": "ElasticJob", "name": "digits", "uid": "earlier"}
    metadata = {
        "name": "digits-rendezvous",
        "annotations": {"elasticjob.dev/run-id": "earlier"},
        "ownerReferences": [owner],
    }
    left_over = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {"state": "ISEhIQ=="}}
    control_plane.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(left_over))
    async with operator(site, epoch=1) as leader:
        leader.server.apply(site.orders())
        await leader.viewed(RunState.WAITING)
        assert (await leader.join(site.tokens[0]))[1]["round"] == 1
    assert site.state()["metadata"]["annotations"]["elasticjob.dev/run-id"] == RUN


async def test_without_access_to_the_published_keys_tokens_are_reviewed(control_plane: Cluster, namespace: str) -> None:
    site = Site(cluster=control_plane, namespace=namespace)
    site.add_pods(1)
    control_plane.kubectl("-n", namespace, "create", "serviceaccount", "narrow")
    name = f"narrow-{namespace}"
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update", "delete"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    ]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }
    control_plane.kubectl("create", "-f", "-", input=json.dumps(role))
    control_plane.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount={namespace}:narrow"
    )
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "narrow")
    discovery = "system:service-account-issuer-discovery"
    binding = json.dumps(control_plane.kubectl.json("get", "clusterrolebinding", discovery))
    control_plane.kubectl("delete", "clusterrolebinding", discovery)
    try:
        async with operator(site, epoch=1, kubeconfig=kubeconfig) as leader:
            leader.server.apply(site.orders())
            await leader.viewed(RunState.WAITING)
            assert (await leader.join(site.tokens[0]))[0] == 200
    finally:
        control_plane.kubectl("replace", "--force", "-f", "-", input=binding)
        control_plane.kubectl("delete", "clusterrole,clusterrolebinding", name)


async def test_worker_pods_join_by_tls_and_the_certificates_outlive_the_leader(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    site = Site(cluster=control_plane, namespace=namespace)
    site.add_pods(1)
    trust = Trust()
    for epoch in (1, 2):
        async with operator(site, epoch=epoch, trust=trust) as leader:
            leader.server.apply(site.orders())
            (tmp_path / "ca.crt").write_text(trust.bundle())
            (tmp_path / "token").write_text(site.tokens[0])
            client = HostedRendezvousClient(
                endpoint=ServerEndpoint(host="127.0.0.1", port=leader.server.port, tls=True),
                run_id=RUN,
                address="10.0.0.1",
                token_file=tmp_path / "token",
                ca_file=tmp_path / "ca.crt",
            )
            assert (await asyncio.to_thread(client.join)).round == epoch
            await asyncio.to_thread(client.leave, LeaveOutcome.LEFT)
            client._http.close()
    secret = control_plane.kubectl.json("-n", namespace, "get", "secret", TLS_SECRET)
    assert set(secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
