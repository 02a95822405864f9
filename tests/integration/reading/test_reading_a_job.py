"""docs/reading-a-job.md shows what commands print of real jobs.

Each test brings a job into a situation and compares what kubectl and the plugin print with the document. With
ELASTICJOB_WRITE_DOCS=1 the document is rewritten instead.
"""

import difflib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.reading.processes import Operators
from tests.integration.reading.site import JOB, Site, eventually
from tests.integration.reading.transcript import blocks, canonical, describe, get_table, paragraph

pytestmark = [pytest.mark.timeout(300, func_only=True), pytest.mark.xdist_group("reading")]

WRITE = "ELASTICJOB_WRITE_DOCS"
SETTLED_SECONDS = 3.0
Printed = dict[str, list[str]]


def printed_by_describe(site: Site) -> list[str]:
    return [f"$ kubectl describe elasticjob {JOB}", *describe(site.kubectl("describe", "ej", JOB))]


def printed_by_get(site: Site) -> list[str]:
    return [f"$ kubectl get elasticjob {JOB} -o wide", *get_table(site.kubectl("get", "ej", JOB, "-o", "wide"))]


def printed_by_why(site: Site) -> list[str]:
    done = site.plugin("why")
    assert not done.returncode, done.stderr
    return [f"$ kubectl elasticjob why {JOB}", *paragraph(done.stdout)]


COMMANDS = {"describe": printed_by_describe, "get": printed_by_get, "why": printed_by_why}


def documented(document: Path, situation: str) -> Printed:
    """The blocks of one situation."""
    found = {match["name"]: match["body"].splitlines() for match in blocks(document.read_text())}
    return {kind: found.get(f"{situation} {kind}", []) for kind in COMMANDS}


def difference(expected: Printed, site: Site) -> str:
    """What the first command prints that does not print what is documented; empty if all do."""
    for kind, command in COMMANDS.items():
        found = canonical(command(site))
        lines = difflib.unified_diff(canonical(expected[kind]), found, "document", kind, lineterm="")
        if told := "\n".join(lines):
            return told
    return ""


def settled(site: Site) -> Printed:
    """What is printed once it has not changed for a while."""
    last, since = printed_by_describe(site), time.monotonic()
    while time.monotonic() - since < SETTLED_SECONDS:
        now = printed_by_describe(site)
        if now != last:
            last, since = now, time.monotonic()
    return {kind: command(site) for kind, command in COMMANDS.items()}


def write(document: Path, situation: str, found: Printed) -> None:
    """Put what was printed into the document."""
    text = document.read_text()
    for match in reversed(list(blocks(text))):
        name, _, kind = match["name"].rpartition(" ")
        if name == situation:
            start, end = match.span("body")
            text = text[:start] + "".join(f"{line}\n" for line in found[kind]) + text[end:]
    document.write_text(text)


@pytest.fixture
def shows(site: Site, document: Path) -> Callable[[str], None]:
    """Compare the job, as soon as it is so, with a situation of the document."""

    def compare(situation: str) -> None:
        if os.environ.get(WRITE):
            write(document, situation, settled(site))
        expected = documented(document, situation)
        differs = "never compared"

        def same() -> bool:
            nonlocal differs
            differs = difference(expected, site)
            return not differs

        try:
            eventually(same, what="the document", seconds=30)
        except AssertionError:
            pytest.fail(f"{document.name} differs, or set {WRITE}=1 and run again:\n{differs}", pytrace=False)

    return compare


def form(site: Site, *pods: str, round_number: int = 1) -> None:
    """These pods run and are a round."""
    site.run(*pods)
    site.join(*pods)
    site.wait(round=round_number, state="Formed", participants=len(pods))


def test_healthy(site: Site, shows: Callable[[str], None]) -> None:
    site.create(replicas=2, minReplicas=1)
    form(site, "digits-0-0", "digits-1-0")
    shows("healthy")


def test_forming(site: Site, shows: Callable[[str], None]) -> None:
    site.create(replicas=3, startupDeadlineSeconds=310)
    site.run("digits-0-0", "digits-1-0")
    site.join("digits-0-0")
    site.wait(waiting=1)
    shows("forming")


def test_waiting_for_room(site: Site, shows: Callable[[str], None]) -> None:
    site.create(replicas=2)
    site.run("digits-0-0")
    site.join("digits-0-0")
    site.cannot_schedule("digits-1-0", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    site.wait(waiting=1)
    shows("no room")


def test_waiting_for_an_image(site: Site, shows: Callable[[str], None]) -> None:
    site.create(replicas=1)
    site.cannot_pull("digits-0-0", 'Back-off pulling image "registry.example/digits:1": not found')
    shows("no image")


def test_after_rank_0_was_killed(site: Site, shows: Callable[[str], None]) -> None:
    site.create(replicas=2, minReplicas=1)
    form(site, "digits-0-0", "digits-1-0")
    site.exit("digits-0-0", 137, "OOMKilled")
    site.wait(waiting=1, state="LastCall")
    site.run("digits-0-1")
    site.join("digits-0-1")
    site.wait(round=2, state="Formed", participants=2)
    shows("rank 0 killed")


def test_after_a_drain(site: Site, shows: Callable[[str], None]) -> None:
    site.create(replicas=2, minReplicas=1, rendezvous={"lastCallTimeoutSeconds": 15})
    form(site, "digits-0-0", "digits-1-0")
    site.allow_evictions(1)
    assert site.plugin("drain", "digits-1").returncode == 0
    site.wait(round=2, state="Formed", participants=1)
    site.finish_deletion("digits-1-0")
    site.run("digits-1-1")
    site.join("digits-1-1")
    site.wait(round=3, state="Formed", participants=2)
    shows("drained")


def test_scaled_down(site: Site, shows: Callable[[str], None]) -> None:
    site.create(replicas=3, minReplicas=1)
    form(site, "digits-0-0", "digits-1-0", "digits-2-0")
    site.kubectl("scale", "elasticjob", JOB, "--replicas=2")
    site.wait(round=2, state="Formed", participants=2)
    site.finish_deletion("digits-2-0")
    shows("scaled down")


def test_failed_by_its_budget(site: Site, shows: Callable[[str], None]) -> None:
    site.create(replicas=2, minReplicas=1, restartPolicy={"maxRestarts": 0}, rendezvous={"closeTimeoutSeconds": 1})
    form(site, "digits-0-0", "digits-1-0")
    site.exit("digits-1-0", 1, "Error")
    eventually(lambda: site.status()["phase"] == "Failed", what="the job has failed")
    site.finish_deletion("digits-0-0")
    shows("failed")


def test_suspended(site: Site, shows: Callable[[str], None]) -> None:
    site.create(replicas=2, minReplicas=1)
    form(site, "digits-0-0", "digits-1-0")
    site.change(suspend=True)
    site.await_event("RoundReforming")
    site.finish_deletion("digits-0-0", "digits-1-0")
    shows("suspended")


def test_after_a_restart_of_the_operator(site: Site, operators: Operators, shows: Callable[[str], None]) -> None:
    site.create(replicas=2, minReplicas=1)
    form(site, "digits-0-0", "digits-1-0")
    # What a killed operator has not told yet, nobody tells.
    site.await_event("RoundFormed")
    operators.kill()
    operators.start()
    eventually(lambda: "restored" in site.status()["rendezvous"].get("cause", ""), what="the run has been taken over")
    shows("operator restarted")
