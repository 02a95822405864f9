"""The scale subresource, by which `kubectl scale`, HPA and KEDA act, as the API server shows it."""

import asyncio
import json
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.integration.operator.operators import Jobs, Operator, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)


async def kubectl(api: Cluster, jobs: Jobs, *arguments: str) -> str:
    return await asyncio.to_thread(api.kubectl, "-n", jobs.namespace, *arguments)


async def scale(api: Cluster, jobs: Jobs) -> dict[str, Any]:
    path = f"/apis/elasticjob.dev/v1alpha1/namespaces/{jobs.namespace}/elasticjobs/digits/scale"
    found: dict[str, Any] = json.loads(await kubectl(api, jobs, "get", "--raw", path))
    return found


async def test_spares_have_pods_and_are_no_replicas(api: Cluster, operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=2, spares=1)

    async def has(pods: int, replicas: int) -> bool:
        shown = await scale(api, jobs)
        counts = (shown["spec"]["replicas"], shown["status"]["replicas"], len(await jobs.pod_names()))
        return counts == (replicas, replicas, pods)

    await eventually(lambda: has(3, 2), what="three pods, of which two are replicas")
    await kubectl(api, jobs, "scale", "elasticjob/digits", "--replicas=4")
    await eventually(lambda: has(5, 4), what="five pods, of which four are replicas")
    await kubectl(api, jobs, "scale", "elasticjob/digits", "--replicas=1")
    await eventually(lambda: has(2, 1), what="two pods, of which one is a replica")


async def test_the_selector_finds_the_pods_of_this_job_alone(api: Cluster, operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=2)
    await jobs.create("letters", replicas=3)

    async def found() -> bool:
        selector = (await scale(api, jobs))["status"].get("selector", "")
        names = (await kubectl(api, jobs, "get", "pods", "-l", selector, "-o", "name")).split() if selector else []
        return names == ["pod/digits-0-0", "pod/digits-1-0"]

    await eventually(found, what="the selector finds two pods")


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        (4, "spec.replicas (4) must not exceed spec.maxReplicas (3)"),
        (1, "spec.minReplicas (2) must not exceed spec.replicas (1)"),
        (0, "should be greater than or equal to 1"),
    ],
)
async def test_a_size_that_is_out_of_range_is_refused(api: Cluster, jobs: Jobs, replicas: int, words: str) -> None:
    await jobs.create(replicas=2, minReplicas=2, maxReplicas=3)
    with pytest.raises(ClusterError) as refused:
        await kubectl(api, jobs, "scale", "elasticjob/digits", f"--replicas={replicas}")
    assert words in str(refused.value)
