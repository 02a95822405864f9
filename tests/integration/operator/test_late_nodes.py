"""A node that comes when the others have finished, with real agents."""

import json

import pytest

from tests.integration.reading.site import Site, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)

NODES = ("digits-0-0", "digits-1-0", "digits-2-0")


def pods(site: Site) -> list[str]:
    found = json.loads(site.kubectl("get", "pods", "-l", "elasticjob.dev/job-name=digits", "-o", "json"))["items"]
    return sorted(one["metadata"]["name"] for one in found if "deletionTimestamp" not in one["metadata"])


def test_a_job_succeeds_with_its_group_though_another_node_was_asked_for(site: Site) -> None:
    site.create(replicas=3, minReplicas=1, maxReplicas=4)
    site.run(*NODES)
    site.join(*NODES)
    site.wait(round=1, state="Formed", participants=3)
    site.change(replicas=4)
    eventually(lambda: "digits-3-0" in pods(site), what="a pod for the fourth node")
    for name in NODES:
        site.exit(name, 0, "Completed")
    eventually(lambda: site.status()["phase"] == "Succeeded", what="the job has succeeded")
    eventually(lambda: pods(site) == list(NODES), what="the pod that never ran is removed")
    site.kubectl("delete", "pod", NODES[0], "--force", "--grace-period=0")
    site.kubectl("label", "elasticjob", "digits", "looked-at=again")
    eventually(lambda: pods(site) == list(NODES[1:]), what="two pods are left")
    assert (site.status()["phase"], site.status()["ledger"]["completed"]) == ("Succeeded", "0-2")
