"""From the first command to the last trace."""

from pathlib import Path

import yaml

from tests.e2e.jobs import FOREVER, job, launched
from tests.e2e.space import Space
from tests.e2e.suite import Suite

COMMAND_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "command" / "elasticjob.yaml"


def test_the_example_without_torch_runs_to_its_end(suite: Suite, space: Space) -> None:
    example = yaml.safe_load(COMMAND_EXAMPLE.read_text())
    worker = example["spec"]["template"]["spec"]["containers"][0]
    worker |= {"image": suite.image, "imagePullPolicy": "Never"}
    # However slow the machine is, the first round has all nodes.
    example["spec"]["waitForReplicasSeconds"] = 120

    space.apply(example)

    space.wait_phase("command", "Succeeded", seconds=120)
    logs = space.all_logs("command")
    assert "round 1: rank 0 of 2" in logs
    assert "round 1: rank 1 of 2" in logs


def test_the_command_that_helm_prints_runs_a_job(suite: Suite, space: Space) -> None:
    manifest = suite.notes().split("<<'YAML'\n")[1].split("  YAML\n")[0]
    hello = yaml.safe_load(manifest)
    # The rest is what a user pastes; only the test's own namespace admits nothing but restricted pods.
    del hello["metadata"]["namespace"]
    restricted = job("hello", image=suite.image, command=[])["spec"]["template"]["spec"]
    hello["spec"]["template"]["spec"]["securityContext"] = restricted["securityContext"]
    hello["spec"]["template"]["spec"]["containers"][0] |= {
        "securityContext": restricted["containers"][0]["securityContext"],
        "imagePullPolicy": "Never",
    }

    space.apply(hello)

    space.wait_phase("hello", "Succeeded", seconds=120)
    assert "rank 1 of 2" in space.all_logs("hello")


def test_a_job_that_is_deleted_in_mid_course_leaves_nothing(suite: Suite, space: Space) -> None:
    before = space.children()
    space.apply(job("deleted", image=suite.image, command=launched(FOREVER)))
    space.wait_training("deleted", nodes=2, seconds=120)
    assert space.children() > before

    space.kubectl("delete", "elasticjob", "deleted", "--timeout=50s")

    space.wait("all children to be gone", lambda: space.children() == before, seconds=120)


def test_events_and_describe_tell_the_story_of_a_job(suite: Suite, space: Space) -> None:
    space.apply(job("told", image=suite.image, command=launched("pass")))
    space.wait_phase("told", "Succeeded", seconds=120)

    space.wait("the story", lambda: "RoundFormed" in space.kubectl("describe", "elasticjob", "told"), seconds=120)

    told = space.kubectl("describe", "elasticjob", "told")
    for word in ("SUCCEEDED", "told-0-0", "told-1-0", "Round:", "JobSucceeded"):
        assert word in told, told
    assert space.kubectl("get", "elasticjobs").splitlines()[0].split()[:2] == ["NAME", "PHASE"]
