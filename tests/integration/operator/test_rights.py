"""An operator that serves one namespace with the least rights, and with less than that."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elasticjob.operator.settings import Settings
from tests.cluster.cluster import Cluster
from tests.integration.operator.conftest import running
from tests.integration.operator.operators import Jobs, Operator, connect_by, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)

Rule = dict[str, Any]
ACCOUNT = "operator"
RULES: Sequence[Rule] = (
    {"apiGroups": ["elasticjob.dev"], "resources": ["elasticjobs"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": ["elasticjob.dev"], "resources": ["elasticjobs/status"], "verbs": ["update"]},
    {"apiGroups": ["elasticjob.dev"], "resources": ["elasticjobs/finalizers"], "verbs": ["update"]},
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["get", "list", "watch", "create", "delete", "patch"],
    },
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch", "create"]},
    {
        "apiGroups": ["policy"],
        "resources": ["poddisruptionbudgets"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
)


def account(api: Cluster, namespace: str, rules: Sequence[Rule]) -> Path:
    """A kubeconfig of a service account with exactly these rights in the namespace."""
    meta = {"name": ACCOUNT, "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    api.kubectl.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": list(rules)},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
        },
    )
    return api.service_account_kubeconfig(namespace, ACCOUNT)


def without(resource: str, *verbs: str) -> Sequence[Rule]:
    """The rules, less these verbs of one resource."""
    kept = []
    for rule in RULES:
        left = [verb for verb in rule["verbs"] if rule["resources"] != [resource] or verb not in verbs]
        kept += [{**rule, "verbs": left}] if left else []
    return kept


def refused(operator: Operator) -> int:
    """How many calls were answered with 403."""
    return sum(
        int(sample.value)
        for metric in operator.app.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "elasticjob_api_calls_total" and sample.labels["code"] == "403"
    )


async def has_pods(jobs: Jobs, count: int) -> bool:
    return len(await jobs.children()) == count


async def test_the_rights_of_one_namespace_are_enough(
    api: Cluster, settings: Settings, jobs: Jobs, namespace: str
) -> None:
    connect = connect_by(account(api, namespace, RULES))
    async with running(Operator(settings, connect)) as operator:
        await operator.leads()
        await jobs.create(replicas=2)
        await eventually(lambda: has_pods(jobs, 2), what="two pods")
        await eventually(lambda: not operator.app.ready(), what="readiness")
        assert refused(operator) == 0


async def test_a_job_of_another_namespace_is_left_alone(api: Cluster, operator: Operator, jobs: Jobs) -> None:
    with api.namespace() as elsewhere:
        theirs = Jobs(jobs.port, elsewhere)
        await theirs.create(replicas=1)
        await jobs.create(replicas=1)
        await eventually(lambda: has_pods(jobs, 1), what="a pod")
        await asyncio.sleep(1)
        assert await theirs.children() == []
        assert "status" not in await theirs.get()


async def test_events_that_are_forbidden_harm_no_job(
    api: Cluster, settings: Settings, jobs: Jobs, namespace: str
) -> None:
    connect = connect_by(account(api, namespace, without("events", "create", "patch")))
    async with running(Operator(settings, connect)) as operator:
        await operator.leads()
        await jobs.create(replicas=2)
        await eventually(lambda: has_pods(jobs, 2), what="two pods")
        await eventually(lambda: dropped(operator) > 0, what="a dropped Event that is counted")
        assert (await jobs.get())["status"]["phase"] == "Pending"


def dropped(operator: Operator) -> float:
    labels = {"type": "Normal", "cause": "Forbidden"}
    return operator.app.metrics.registry.get_sample_value("elasticjob_events_dropped_total", labels) or 0.0


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_an_operator_that_is_blind_is_not_ready(
    api: Cluster, settings: Settings, namespace: str, verb: str
) -> None:
    connect = connect_by(account(api, namespace, without("pods", verb)))
    async with running(Operator(settings, connect)) as operator:
        for _ in range(50):
            assert operator.app.ready() != []
            await asyncio.sleep(0.1)
        assert operator.app.live() == []
