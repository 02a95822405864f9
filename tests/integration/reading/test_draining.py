"""`kubectl elasticjob drain` against a real API server, with its own eviction API and its own refusals."""

import pytest

from tests.integration.reading.site import Site, eventually

pytestmark = [pytest.mark.timeout(300, func_only=True), pytest.mark.xdist_group("reading")]


def form(site: Site, *pods: str) -> None:
    """These pods are round 1."""
    site.run(*pods)
    site.join(*pods)
    site.wait(round=1, state="Formed", participants=len(pods))


def test_the_others_train_on_while_a_drained_node_is_replaced(site: Site) -> None:
    site.create(replicas=2, minReplicas=1, rendezvous={"lastCallTimeoutSeconds": 15})
    form(site, "digits-0-0", "digits-1-0")
    site.allow_evictions(1)
    done = site.plugin("drain", "digits-1")
    assert done.stdout.splitlines() == [
        "digits-1 (pod digits-1-0 on machine node-b) has been asked to leave.",
        "The others go on as soon as its replacement joins from another machine, or without after 15 s of last call.",
        "Watch it: kubectl elasticjob status digits --watch",
    ]
    # The evicted pod is still there: nothing has ended its containers.
    site.wait(round=2, state="Formed", participants=1)
    assert "digits-1-0" in site.kubectl("get", "pods", "-o", "name")
    assert site.status()["restarts"] == {"failures": 0, "disruptions": 1, "resizes": 0}
    replacement = site.cluster.kubectl.json("-n", site.namespace, "get", "pod", "digits-1-1")
    (preferred,) = replacement["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchFields"][0]["values"] == ["node-b"]
    assert site.plugin("drain", "digits-1-0").stdout.startswith("digits-1 (pod digits-1-0")


def test_a_machine_is_drained_of_the_jobs_pods(site: Site) -> None:
    site.create(replicas=2)
    form(site, "digits-0-0", "digits-1-0")
    done = site.plugin("drain", "node-a")
    assert done.stdout.splitlines()[:2] == [
        "digits-0 (pod digits-0-0 on machine node-a) has been asked to leave.",
        "Training pauses until its replacement joins: the job needs 2 of its 2 nodes.",
    ]
    eventually(lambda: "digits-0-1" in site.kubectl("get", "pods", "-o", "name"), what="a replacement")


def test_the_disruption_budget_refuses_in_its_own_words(site: Site) -> None:
    site.create(replicas=2, minReplicas=1)
    site.run("digits-0-0")
    site.allow_evictions(0)
    done = site.plugin("drain", "digits-0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "was not evicted: Cannot evict pod as it would violate the pod's disruption budget." in done.stderr
    assert "The job keeps at least 1 of its 2 nodes" in done.stderr


def test_an_unknown_node_is_answered_with_those_that_exist(site: Site) -> None:
    site.create(replicas=2)
    site.bind("digits-0-0", "digits-1-0")
    done = site.plugin("drain", "digits-7")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: digits has no node, no pod and no machine 'digits-7'. It has digits-0 (pod digits-0-0 on machine "
        "node-a), digits-1 (pod digits-1-0 on machine node-b)\n"
    )
