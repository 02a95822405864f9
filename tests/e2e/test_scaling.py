"""`kubectl scale` changes the group, never the nodes that stay."""

import json

from tests.e2e.jobs import FOREVER, job, launched
from tests.e2e.space import Space, ranks, round_of
from tests.e2e.suite import Suite


def test_scaling_up_and_down_keeps_the_other_pods(suite: Suite, space: Space) -> None:
    space.apply(job("scaled", image=suite.image, command=launched(FOREVER), replicas=2, maximum=3))
    first = space.wait_training("scaled", nodes=2, seconds=120)
    originals = space.pod_uids("scaled")

    space.kubectl("scale", "elasticjob", "scaled", "--replicas=3")
    second = space.wait_training("scaled", nodes=3, newer_than=round_of(first), seconds=120)
    assert originals.items() <= space.pod_uids("scaled").items()

    space.kubectl("scale", "elasticjob", "scaled", "--replicas=2")
    third = space.wait_training("scaled", nodes=2, newer_than=round_of(second), seconds=120)

    space.wait("the third pod to go", lambda: len(space.pods("scaled")) == 2, seconds=120)
    assert space.pod_uids("scaled") == originals
    assert sorted(ranks(third)) == [0, 1]
    assert third["restarts"]["failures"] == 0
    assert third["restarts"]["disruptions"] == 0


def test_the_scale_subresource_counts_and_selects_the_workers(suite: Suite, space: Space) -> None:
    space.apply(job("scaled", image=suite.image, command=launched(FOREVER)))
    space.wait_training("scaled", nodes=2, seconds=120)

    scale = json.loads(
        space.kubectl(
            "get", "--raw", f"/apis/elasticjob.dev/v1alpha1/namespaces/{space.namespace}/elasticjobs/scaled/scale"
        )
    )

    assert scale["spec"]["replicas"] == 2
    assert scale["status"]["replicas"] == 2
    selected = space.get("pods", "-l", scale["status"]["selector"])["items"]
    assert {pod["metadata"]["name"] for pod in selected} == set(space.pod_uids("scaled"))
