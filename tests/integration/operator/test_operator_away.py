"""A running job with real agents while no operator runs: what happened is caught up with, and nothing is repeated."""

import json
from typing import Any

import pytest

from tests.integration.reading.processes import Operators
from tests.integration.reading.site import Site, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)

NODES = ("digits-0-0", "digits-1-0", "digits-2-0")


def pods(site: Site) -> dict[str, str]:
    """UIDs of the job's pods by name, those that are being deleted left out."""
    found = json.loads(site.kubectl("get", "pods", "-l", "elasticjob.dev/job-name=digits", "-o", "json"))["items"]
    return {
        one["metadata"]["name"]: one["metadata"]["uid"] for one in found if "deletionTimestamp" not in one["metadata"]
    }


def told(site: Site, reason: str) -> int:
    """How often that was told about the job."""
    events: list[dict[str, Any]] = json.loads(site.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
    return sum((one.get("series") or {}).get("count", 1) for one in events if one["reason"] == reason)


def test_a_job_goes_on_from_what_happened_while_no_operator_ran(site: Site, operators: Operators) -> None:
    site.create(replicas=3, minReplicas=1, rendezvous={"lastCallTimeoutSeconds": 1})
    site.run(*NODES)
    site.join(*NODES)
    site.wait(round=1, state="Formed", participants=3)
    before = pods(site)
    eventually(lambda: told(site, "JobStarted") == 1, what="the start is told")
    operators.kill()
    site.exit("digits-2-0", 0, "Completed")
    site.kubectl("delete", "pod", "digits-1-0", "--force", "--grace-period=0")
    site.change(replicas=4)
    operators.start()
    wanted = {"digits-0-0", "digits-1-1", "digits-2-0", "digits-3-0"}
    eventually(lambda: pods(site).keys() == wanted, what=f"the pods are {sorted(wanted)}")
    assert pods(site).items() >= {(name, before[name]) for name in ("digits-0-0", "digits-2-0")}
    eventually(lambda: site.status()["restarts"]["resizes"] == 1, what="the new size is counted")
    assert site.status()["restarts"] == {"failures": 0, "disruptions": 1, "resizes": 1}
    assert site.status()["ledger"]["completed"] == "2"
    assert told(site, "JobStarted") == 1


def test_a_job_that_ended_while_no_operator_ran_is_over_and_deleted_in_its_time(
    site: Site, operators: Operators
) -> None:
    site.create(replicas=2, ttlSecondsAfterFinished=0)
    site.run(*NODES[:2])
    site.join(*NODES[:2])
    site.wait(round=1, state="Formed", participants=2)
    operators.kill()
    for name in NODES[:2]:
        site.exit(name, 0, "Completed")
    operators.start()
    eventually(lambda: told(site, "JobSucceeded") == 1, what="the success is told")
    eventually(
        lambda: not site.kubectl("get", "elasticjob", "digits", "--ignore-not-found", "-o", "name").strip(),
        what="the job is deleted",
    )


def test_an_operator_killed_while_a_round_re_forms_is_followed_by_one_that_forms_it(
    site: Site, operators: Operators
) -> None:
    site.create(replicas=2, minReplicas=2)
    site.run(*NODES[:2])
    site.join(*NODES[:2])
    site.wait(round=1, state="Formed", participants=2)
    site.agents["digits-1-0"].stop()
    site.exit("digits-1-0", 1, "Error")
    eventually(lambda: "digits-1-1" in pods(site), what="the replacement")
    eventually(lambda: told(site, "JobStarted") == 1, what="the start is told")
    epoch = site.status()["rendezvous"]["epoch"]
    operators.kill()
    operators.start()
    eventually(lambda: site.status()["rendezvous"]["epoch"] > epoch, what="the run is taken over")
    site.run("digits-1-1")
    site.join("digits-0-0", "digits-1-1")
    site.wait(round=2, state="Formed", participants=2)
    assert site.status()["restarts"]["failures"] == 1
    assert told(site, "JobStarted") == 1
