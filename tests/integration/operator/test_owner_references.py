"""An API server that checks who may own what, with an operator that has the rights of the chart and no others."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticjob.operator.cluster import Cluster as Port
from elasticjob.operator.cluster import Connect
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.ports import Body
from elasticjob.operator.resources import DISRUPTION_BUDGETS, PODS, SERVICES
from elasticjob.operator.settings import Settings
from tests.cluster import cluster as clusters
from tests.cluster.build import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.kubectl import Helm
from tests.cluster.state import CONTROL_PLANE
from tests.integration.operator.conftest import running
from tests.integration.operator.operators import Jobs, Operator, connect_by, eventually, settings_for
from tests.unit.crds.schema import PATH

# One worker starts the cluster that all of them need.
pytestmark = [pytest.mark.timeout(600, func_only=True), pytest.mark.xdist_group("owners")]

CHART = PATH.parent.parent / "charts" / "elasticjob"
ACCOUNT = "elasticjob"
KINDS = (PODS, SERVICES, DISRUPTION_BUDGETS)


@pytest.fixture(scope="module")
def api() -> Iterator[Cluster]:
    """An API server with the admission plugin; it lets nobody block the deletion of what he may not finalize."""
    plugins = ("OwnerReferencesPermissionEnforcement",)
    name = f"owners-{os.getpid()}"
    cluster = clusters.up(level=CONTROL_PLANE, name=name, admission_plugins=plugins, owned=True)
    try:
        cluster.kubectl("apply", "--server-side", "-f", str(PATH))
        cluster.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticjob.dev", "--timeout=30s")
        yield cluster
    finally:
        clusters.down(name)


@pytest.fixture
def namespace(api: Cluster) -> Iterator[str]:
    with api.namespace() as name:
        yield name


@pytest.fixture
async def jobs(api: Cluster, namespace: str) -> AsyncIterator[Jobs]:
    port = Port(await connect_by(api.kubeconfig)(), timeout=10, metrics=Metrics())
    yield Jobs(port, namespace)
    await port.close()


@pytest.fixture
def settings(namespace: str) -> Settings:
    """As the chart sets them, where its Role names things."""
    return settings_for(namespace, lease_name=ACCOUNT, rendezvous_tls=False)


@pytest.fixture
def roles(namespace: str, tmp_path: Path) -> Sequence[dict[str, Any]]:
    """What the chart creates for the operator of one namespace."""
    helm = Helm(program=binaries() / "helm", kubeconfig=tmp_path / "none", home=tmp_path)
    text = helm("template", "elasticjob", str(CHART), "--namespace", namespace, "--set=scope=namespace")
    objects = [one for one in yaml.safe_load_all(text) if one]
    return [one for one in objects if one["kind"] in ("ServiceAccount", "Role", "RoleBinding")]


@pytest.fixture
def connect(api: Cluster, namespace: str, roles: Sequence[dict[str, Any]]) -> Connect:
    """The way to the API server as the chart's service account."""
    api.kubectl.apply(*roles)
    return connect_by(api.service_account_kubeconfig(namespace, ACCOUNT))


def without_finalizers(role: dict[str, Any]) -> dict[str, Any]:
    kept = [rule for rule in role.get("rules", ()) if rule["resources"] != ["elasticjobs/finalizers"]]
    return {**role, "rules": kept} if role["kind"] == "Role" else role


async def children(jobs: Jobs) -> list[Body]:
    return [child for kind in KINDS for child in await jobs.children(kind)]


async def is_whole(jobs: Jobs) -> bool:
    """Two pods, the Service and the disruption budget."""
    return len(await children(jobs)) == 4


async def delete(api: Cluster, jobs: Jobs, cascade: str) -> None:
    arguments = ("-n", jobs.namespace, "delete", "elasticjob/digits", f"--cascade={cascade}", "--wait=false")
    await asyncio.to_thread(api.kubectl, *arguments)


async def nothing_is_left(jobs: Jobs) -> bool:
    return await jobs.is_gone() and not await children(jobs)


async def all_are_orphans(jobs: Jobs) -> bool:
    owned = [child for child in await children(jobs) if child["metadata"].get("ownerReferences")]
    return await jobs.is_gone() and not owned


async def test_the_rights_of_the_chart_are_enough(settings: Settings, connect: Connect, jobs: Jobs) -> None:
    async with running(Operator(settings, connect)):
        await jobs.create(replicas=2, minReplicas=1)
        await eventually(lambda: is_whole(jobs), what="all children")
    for child in await children(jobs):
        assert [owner["blockOwnerDeletion"] for owner in child["metadata"]["ownerReferences"]] == [True]


async def test_without_the_right_to_finalize_the_api_server_refuses_and_the_job_says_so(
    api: Cluster, settings: Settings, connect: Connect, jobs: Jobs, roles: Sequence[dict[str, Any]]
) -> None:
    api.kubectl.apply(*map(without_finalizers, roles))
    async with running(Operator(settings, connect)):
        await jobs.create(replicas=2, minReplicas=1)
        words = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
        await eventually(lambda: says(jobs, words), what="the words of the API server")
        assert await jobs.children() == []
        api.kubectl.apply(*roles)
        await eventually(lambda: is_whole(jobs), what="all children, once the right is given")


async def says(jobs: Jobs, words: str) -> bool:
    return words in (await jobs.condition("Ready")).get("message", "")


@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_a_deleted_job_takes_all_with_it_and_nothing_is_made_anew(
    api: Cluster, settings: Settings, connect: Connect, jobs: Jobs, cascade: str
) -> None:
    async with running(Operator(settings, connect)) as operator:
        await jobs.create(replicas=2, minReplicas=1)
        await eventually(lambda: is_whole(jobs), what="all children")
        await eventually(lambda: operator.count("post", "pods") == 2, what="two calls that are answered")
        await delete(api, jobs, cascade)
        await eventually(lambda: nothing_is_left(jobs), what="neither job nor children")
        assert operator.count("post", "pods") == 2


async def test_orphans_are_left_to_their_new_owner(
    api: Cluster, settings: Settings, connect: Connect, jobs: Jobs
) -> None:
    async with running(Operator(settings, connect)):
        await jobs.create(replicas=2, minReplicas=1)
        await eventually(lambda: is_whole(jobs), what="all children")
        before = await pods(jobs)
        await delete(api, jobs, "orphan")
        await eventually(lambda: all_are_orphans(jobs), what="no owner is named any more")
        await jobs.create(replicas=2, minReplicas=1)
        await eventually(
            lambda: says(jobs, "already exists and is not controlled by this job"), what="the name is said to be taken"
        )
        assert await pods(jobs) == before


async def pods(jobs: Jobs) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await jobs.children()}


@pytest.mark.parametrize(
    ("cascade", "is_over"),
    [("background", nothing_is_left), ("foreground", nothing_is_left), ("orphan", all_are_orphans)],
)
async def test_a_job_is_deleted_without_any_operator(
    api: Cluster, settings: Settings, connect: Connect, jobs: Jobs, cascade: str, is_over: Any
) -> None:
    async with running(Operator(settings, connect)):
        await jobs.create(replicas=2, minReplicas=1)
        await eventually(lambda: is_whole(jobs), what="all children")
    await delete(api, jobs, cascade)
    await eventually(lambda: is_over(jobs), what="the job is gone")
    before = await jobs.pod_names()
    async with running(Operator(settings, connect)) as operator:
        await jobs.create("witness", replicas=1)
        await eventually(lambda: has_pod(jobs, "witness-0-0"), what="the operator acts")
        await eventually(lambda: operator.count("post", "pods") > 0, what="its call is counted")
    assert operator.count("post", "pods") == 1
    assert [name for name in await jobs.pod_names() if name != "witness-0-0"] == before


async def has_pod(jobs: Jobs, name: str) -> bool:
    return name in await jobs.pod_names()
