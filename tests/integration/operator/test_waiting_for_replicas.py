"""A job that is to begin at its wanted size, with real agents of which some never come."""

import pytest

from elasticjob.operator.model.stamps import parse_time
from tests.integration.reading.processes import Operators
from tests.integration.reading.site import Site, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)

NODES = ("digits-0-0", "digits-1-0", "digits-2-0")
TIMES = {"lastCallTimeoutSeconds": 1, "keepAliveIntervalSeconds": 1}


def says(site: Site, words: str) -> bool:
    conditions = site.status().get("conditions", ())
    return any(one["type"] == "Ready" and words in one["message"] for one in conditions)


def test_a_job_begins_at_its_wanted_size_though_the_operator_dies_while_it_waits(
    site: Site, operators: Operators
) -> None:
    site.create(replicas=3, minReplicas=2, waitForReplicasSeconds=3600, rendezvous=TIMES)
    site.run(*NODES)
    site.join(*NODES[:2])
    site.wait(state="LastCall", waiting=2)
    eventually(lambda: says(site, "with the nodes that are in (waitForReplicasSeconds)"), what="the rule is told")
    before = site.status()["rendezvous"]
    operators.kill()
    operators.start()
    site.wait(epoch=before["epoch"] + 1)
    site.join(*NODES[:2])
    site.wait(state="LastCall", waiting=2, round=0)
    assert parse_time(site.status()["rendezvous"]["deadline"]) > parse_time(before["deadline"])
    site.join(NODES[2])
    site.wait(round=1, participants=3)


def test_a_job_begins_with_fewer_nodes_when_it_has_waited(site: Site) -> None:
    site.create(replicas=3, minReplicas=2, waitForReplicasSeconds=3, rendezvous=TIMES)
    site.run(*NODES)
    site.join(*NODES[:2])
    site.wait(round=1, participants=2)
    site.join(NODES[2])
    site.wait(round=2, participants=3)
