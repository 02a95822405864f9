"""Statuses as they are composed, stored by a real API server."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.unit.operator.world import World, running

Apply = Callable[..., dict[str, Any]]


def interrupted() -> World:
    world = running(4, minReplicas=2)
    world.exit(1, 137, why="OOMKilled", message="é" * 600)
    world.settle()
    world.run(1)
    world.form(0, 1, 2, 3, cause="digits-1 failed", last_round_seconds=0.25, deadline_seconds=5.0)
    world.settle()
    return world


def suspended() -> World:
    world = interrupted()
    world.spec(suspend=True)
    world.settle()
    return world


def over() -> World:
    world = interrupted()
    for index in range(4):
        world.exit(index, 0)
    world.settle()
    return world


def store(api: Cluster, namespace: str, status: dict[str, Any]) -> dict[str, Any]:
    patch = json.dumps({"status": status})
    api.kubectl("-n", namespace, "patch", "ej/digits", "--subresource=status", "--type=merge", "-p", patch)
    stored: dict[str, Any] = api.kubectl.json("-n", namespace, "get", "ej", "digits")["status"]
    return stored


@pytest.mark.parametrize("make", [lambda: running(2), interrupted, suspended, over])
def test_a_status_comes_back_as_it_was_written(
    api: Cluster, namespace: str, apply: Apply, make: Callable[[], World]
) -> None:
    apply(replicas=4)
    status = make().status
    assert store(api, namespace, status) == status


def test_the_columns_tell_the_truth(api: Cluster, namespace: str, apply: Apply) -> None:
    apply(replicas=4)
    store(api, namespace, interrupted().status)
    header, row = api.kubectl("-n", namespace, "get", "ej").splitlines()
    assert header.split() == ["NAME", "PHASE", "NODES", "ROUND", "RESTARTS", "AGE"]
    assert row.split()[:5] == ["digits", "Running", "4/4", "2", "1"]


def test_wide_columns_tell_why(api: Cluster, namespace: str, apply: Apply) -> None:
    apply(replicas=4)
    store(api, namespace, interrupted().status)
    wide = api.kubectl("-n", namespace, "get", "ej", "-o", "wide")
    assert "BACKEND" in wide
    assert "digits-1 failed" in wide
    assert "round 2 trains on 4 of 4 nodes" in wide


def test_a_job_is_listed_with_everything_else(api: Cluster, namespace: str, apply: Apply) -> None:
    apply()
    assert "elasticjob.elasticjob.dev/digits" in api.kubectl("-n", namespace, "get", "all", "-o", "name")


def test_autoscalers_read_size_and_selector(api: Cluster, namespace: str, apply: Apply) -> None:
    apply(replicas=4)
    status = interrupted().status
    store(api, namespace, status)
    path = f"/apis/elasticjob.dev/v1alpha1/namespaces/{namespace}/elasticjobs/digits/scale"
    scale = json.loads(api.kubectl("get", "--raw", path))
    assert scale["spec"]["replicas"] == 4
    assert scale["status"] == {"replicas": 4, "selector": status["selector"]}


def test_kubectl_waits_for_the_conditions(api: Cluster, namespace: str, apply: Apply) -> None:
    job = apply(replicas=4)
    status = interrupted().status
    for condition in status["conditions"]:
        condition["observedGeneration"] = job["metadata"]["generation"]
    store(api, namespace, status)
    api.kubectl("-n", namespace, "wait", "--for=condition=Ready", "ej/digits", "--timeout=5s")
