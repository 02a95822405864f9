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
import pytest
from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration

from elasticjob.operator.constants import API_VERSION, KIND, TOKEN_AUDIENCE
from elasticjob.operator.errors import NotLeader
from elasticjob.operator.hosting.compose import TLS_SECRET, HostedRendezvous, ServerParts, Trust
from elasticjob.operator.hosting.half import HostContext
from elasticjob.operator.leadership.elector import Leadership, Term
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.settings import from_environment
from elasticjob.rendezvous.client import HostedRendezvousClient
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.orders import CloseReason, NodeFacts, NodePhase, RunOrders, RunState, RunView
from elasticjob.rendezvous.protocol import LeaveOutcome
from tests.cluster.cluster import Cluster


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
    """One namespace with a job, its worker pods, and operators that come and go.

    The job is there, since its state is collected as garbage when the owner is not.
    """

    cluster: Cluster
    namespace: str
    run: str
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
        fields = {"run_id": self.run, "min_nodes": 1, "max_nodes": 8, "expected": frozenset(self.uids), "nodes": nodes}
        return RunOrders(namespace=self.namespace, job="digits", **{**fields, **changes})

    def state(self) -> Any:
        """The stored ConfigMap."""
        return self.cluster.kubectl.json("-n", self.namespace, "get", "configmap", "digits-rendezvous")


@pytest.fixture
def site(api: Cluster, namespace: str) -> Site:
    template = {"spec": {"containers": pod("digits")["spec"]["containers"]}}
    job = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "digits"},
        "spec": {"replicas": 1, "template": template},
    }
    api.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(job))
    found = api.kubectl.json("-n", namespace, "get", "elasticjob", "digits")
    return Site(cluster=api, namespace=namespace, run=found["metadata"]["uid"])


@dataclass(kw_only=True)
class Operator:
    """One operator process, as far as the rendezvous goes."""

    run: str
    server: HostedRendezvous
    task: "asyncio.Task[None]"
    session: aiohttp.ClientSession

    async def call(self, path: str, body: object, *, token: str) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {token}", "Elasticjob-Protocol": "1"}
        url = f"http://127.0.0.1:{self.server.port}/v1/runs/{self.run}/{path}"
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
                view = self.server.view(self.run)
                if view is not None and is_so(view):
                    return view
                await asyncio.sleep(0.02)


async def _never() -> bool:
    return False


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
        installation="lease-1",
        leadership=leading(epoch),
        holds_lease=_never,
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
            yield Operator(run=site.run, server=server, task=task, session=session)
        finally:
            stop.set()
            await asyncio.gather(task, return_exceptions=True)


async def test_pods_join_by_their_own_tokens_and_the_round_is_in_a_config_map(site: Site) -> None:
    site.add_pods(2)
    async with operator(site, epoch=1) as leader:
        leader.server.apply(site.orders())
        await leader.viewed(RunState.WAITING)
        answers = await asyncio.gather(*(leader.join(token) for token in site.tokens.values()))
        assert [status for status, _ in answers] == [200, 200]
        assert [body["rank"] for _, body in answers] == [0, 1]
        stored = site.state()
        assert stored["metadata"]["labels"]["elasticjob.dev/job-uid"] == site.run
        assert stored["metadata"]["ownerReferences"][0]["uid"] == site.run
        assert (site.namespace, "digits") in site.changes


async def test_tokens_for_other_ears_and_other_pods_are_refused(site: Site) -> None:
    site.add_pods(2)
    async with operator(site, epoch=1) as leader:
        stranger = site.uids.pop(1)
        leader.server.apply(site.orders())
        await leader.viewed(RunState.WAITING)
        status, body = await leader.join(site.token("digits-0-0", "https://kubernetes.default.svc"))
        assert (status, body["error"]["code"]) == (401, "unauthenticated")
        unbound = str(
            site.cluster.kubectl("-n", site.namespace, "create", "token", "default", f"--audience={TOKEN_AUDIENCE}")
        )
        status, body = await leader.join(unbound.strip())
        assert (status, body["error"]["code"]) == (401, "unauthenticated")
        status, body = await leader.join(site.tokens[1])
        assert (status, body["error"]["code"]) == (404, "unknown-node"), stranger


async def test_a_new_leader_goes_on_and_the_old_one_falls_silent(site: Site) -> None:
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


async def test_a_corrupt_state_is_named_and_left_alone(site: Site) -> None:
    site.add_pods(1)
    async with operator(site, epoch=1) as leader:
        leader.server.apply(site.orders())
        await leader.viewed(RunState.WAITING)
    patch = json.dumps({"binaryData": {"state": "ISEhIQ=="}})
    site.cluster.kubectl("-n", site.namespace, "patch", "configmap", "digits-rendezvous", "--type=merge", "-p", patch)
    before = site.state()
    async with operator(site, epoch=2) as leader:
        leader.server.apply(site.orders())
        view = await leader.shown(lambda view: view.failed)
        assert f"job {site.namespace}/digits" in view.failed
        leader.server.apply(site.orders(close=CloseReason.FAILED))
        await asyncio.sleep(0.2)
    assert site.state() == before


async def test_a_deleted_state_is_written_again_by_its_leader(site: Site) -> None:
    site.add_pods(1)
    token = site.tokens[0]
    async with operator(site, epoch=1) as leader:
        leader.server.apply(site.orders())
        await leader.viewed(RunState.WAITING)
        await leader.join(token)
        site.cluster.kubectl("-n", site.namespace, "delete", "configmap", "digits-rendezvous")
        status, body = await leader.join(token, round=1)
        assert (status, body["round"]) == (200, 2)
        assert site.state()["binaryData"]


async def test_the_state_of_an_earlier_job_of_the_same_name_is_not_taken_over(site: Site) -> None:
    site.add_pods(1)
    owner = {"apiVersion": "elasticjob.dev/v1alpha1", "kind": "ElasticJob", "name": "digits", "uid": "earlier"}
    metadata = {
        "name": "digits-rendezvous",
        "annotations": {"elasticjob.dev/run-id": "earlier"},
        "ownerReferences": [owner],
    }
    left_over = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {"state": "ISEhIQ=="}}
    site.cluster.kubectl("-n", site.namespace, "create", "-f", "-", input=json.dumps(left_over))
    async with operator(site, epoch=1) as leader:
        leader.server.apply(site.orders())
        await leader.viewed(RunState.WAITING)
        assert (await leader.join(site.tokens[0]))[1]["round"] == 1
    assert site.state()["metadata"]["annotations"]["elasticjob.dev/run-id"] == site.run


async def test_without_access_to_the_published_keys_tokens_are_reviewed(site: Site) -> None:
    site.add_pods(1)
    site.cluster.kubectl("-n", site.namespace, "create", "serviceaccount", "narrow")
    name = f"narrow-{site.namespace}"
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
    site.cluster.kubectl("create", "-f", "-", input=json.dumps(role))
    site.cluster.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount={site.namespace}:narrow"
    )
    kubeconfig = site.cluster.service_account_kubeconfig(site.namespace, "narrow")
    discovery = "system:service-account-issuer-discovery"
    binding = json.dumps(site.cluster.kubectl.json("get", "clusterrolebinding", discovery))
    site.cluster.kubectl("delete", "clusterrolebinding", discovery)
    try:
        async with operator(site, epoch=1, kubeconfig=kubeconfig) as leader:
            leader.server.apply(site.orders())
            await leader.viewed(RunState.WAITING)
            assert (await leader.join(site.tokens[0]))[0] == 200
    finally:
        site.cluster.kubectl("replace", "--force", "-f", "-", input=binding)
        site.cluster.kubectl("delete", "clusterrole,clusterrolebinding", name)


async def test_worker_pods_join_by_tls_and_the_certificates_outlive_the_leader(site: Site, tmp_path: Path) -> None:
    site.add_pods(1)
    trust = Trust()
    for epoch in (1, 2):
        async with operator(site, epoch=epoch, trust=trust) as leader:
            leader.server.apply(site.orders())
            (tmp_path / "ca.crt").write_text(trust.bundle())
            (tmp_path / "token").write_text(site.tokens[0])
            client = HostedRendezvousClient(
                endpoint=ServerEndpoint(host="127.0.0.1", port=leader.server.port, tls=True),
                run_id=site.run,
                address="10.0.0.1",
                token_file=tmp_path / "token",
                ca_file=tmp_path / "ca.crt",
            )
            assert (await asyncio.to_thread(client.join)).round == epoch
            await asyncio.to_thread(client.leave, LeaveOutcome.LEFT)
            client._http.close()
    secret = site.cluster.kubectl.json("-n", site.namespace, "get", "secret", TLS_SECRET)
    assert set(secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
