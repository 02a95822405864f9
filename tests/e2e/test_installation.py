"""Helm installs, removes and brings back the operator; jobs and their pods outlive all of it."""

import pytest

from tests.e2e.jobs import FOREVER, job, launched
from tests.e2e.space import Space, round_of
from tests.e2e.suite import CHART, NAMESPACE, Suite


def test_the_rendered_chart_is_accepted_by_the_api_server(suite: Suite) -> None:
    rendered = suite.helm(
        *("template", "dry", str(CHART), "--namespace", NAMESPACE, "--include-crds", "--set=replicaCount=2"),
        *("--set=networkPolicy.enabled=true", "--set=flowSchema.enabled=true"),
    )

    said = suite.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", input=rendered)

    assert "deployment.apps/dry-elasticjob serverside-applied (server dry run)" in said
    assert "flowschema" in said


def test_the_operator_runs_under_the_restricted_profile(suite: Suite) -> None:
    labels = suite.kubectl.json("get", "namespace", NAMESPACE)["metadata"]["labels"]
    pods = suite.kubectl.json("-n", NAMESPACE, "get", "pods")["items"]

    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert [status["ready"] for pod in pods for status in pod["status"]["containerStatuses"]] == [True]


@pytest.mark.timeout(400, func_only=True)
def test_jobs_outlive_the_operator_and_are_served_by_another_release(suite: Suite, space: Space) -> None:
    for name in ("kept", "removed"):
        space.apply(job(name, image=suite.image, command=launched(FOREVER)))
    before = space.wait_training("kept", nodes=2, seconds=120)
    space.wait_training("removed", nodes=2, seconds=120)
    pods = space.pod_uids("kept")

    with suite.replaced_by("another") as install_the_other:
        assert suite.kubectl.exists("crd", "elasticjobs.elasticjob.dev")
        assert space.pod_uids("kept") == pods
        # Nothing waits for an operator that is not there.
        space.kubectl("delete", "elasticjob", "removed", "--timeout=50s")
        space.wait("the pods of the deleted job to go", lambda: not space.pods("removed"), seconds=120)

        install_the_other()
        space.kubectl("scale", "elasticjob", "kept", "--replicas=3")
        after = space.wait_training("kept", nodes=3, newer_than=round_of(before), seconds=120)
        assert pods.items() <= space.pod_uids("kept").items()
        assert after["restarts"]["failures"] == 0
