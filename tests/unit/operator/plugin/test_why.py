"""The paragraph that says what a job waits for."""

from typing import Any

from elasticjob.operator.plugin.text import Style
from elasticjob.operator.plugin.why import why
from tests.unit.operator.plugin.jobs import NOW, condition, job, running, waiting


def told(body: dict[str, Any]) -> str:
    lines = why(body, now=NOW, style=Style())
    assert max(map(len, lines)) <= 80
    return " ".join(lines)


def test_a_running_job_tells_of_its_last_change() -> None:
    assert told(running()) == (
        "digits trains, for 2m (since 14:08:00Z). Round 3 trains on 2 of 2 nodes. "
        "Round 3 formed at 14:08:00Z because: digits-0 joined."
    )


def test_a_job_that_finds_no_room_tells_what_would_help_and_when_it_gives_up() -> None:
    message = (
        "1 of 2 joined (min 2). digits-1 is Pending: 0/2 nodes are available: 2 Insufficient cpu. "
        "Fails at 14:30:00Z (startupDeadlineSeconds)."
    )
    assert told(waiting("Unschedulable", message)) == (
        "digits is forming its first round, for 10m (since 14:00:00Z). "
        f"{message} It goes on by itself once the cluster has room. Or ask for fewer nodes (kubectl scale), let it "
        "train on fewer (spec.minReplicas), or suspend it and lower what a pod requests."
    )


def test_a_suspended_job_tells_how_it_goes_on() -> None:
    conditions = [condition("Ready", "False", "SuspendedBySpec", "no pod exists", since="14:09:00")]
    body = running(phase="Suspended", conditions=conditions, history=[])
    assert told(body) == (
        "digits is suspended, for 1m (since 14:09:00Z). No pod exists. To go on, set spec.suspend to false."
    )


def test_a_failed_job_tells_what_failed() -> None:
    words = "11 failures are more than maxRestarts (10)"
    conditions = [
        condition("Ready", "False", "MaxRestartsExceeded", words, since="14:09:00"),
        condition("Failed", "True", "MaxRestartsExceeded", words, since="14:09:00"),
    ]
    text = told(running(phase="Failed", conditions=conditions))
    assert text.startswith(f"digits has failed, for 1m (since 14:09:00Z). {words}. Look at the last failure")
    assert "formed at" not in text


def test_an_operator_that_has_not_looked_is_named() -> None:
    text = told(job())
    assert text.startswith("digits: the operator has not looked at it at all yet. It was created 10m ago.")
    assert "check that the operator runs" in text
    assert "in its present form" in told(running(observedGeneration=1))


def test_the_limit_of_the_whole_job_is_told() -> None:
    body = running()
    body["spec"]["activeDeadlineSeconds"] = 3600
    assert "It may run for another 50m (activeDeadlineSeconds)." in told(body)


def test_a_state_that_cannot_be_stored_is_told() -> None:
    body = running()
    words = "round 3, Formed. Its state cannot be stored: etcd does not answer"
    body["status"]["conditions"][2] = condition("RendezvousReady", "True", "RoundFormed", words)
    assert f"{words[0].upper()}{words[1:]}." in told(body)
