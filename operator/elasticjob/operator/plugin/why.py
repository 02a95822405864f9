"""One paragraph for a person in a hurry: what the job does, what it waits for, what would help, when it gives up."""

import textwrap
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.model import Condition
from elasticjob.operator.model.fields import mapping, number
from elasticjob.operator.plugin.job import Job
from elasticjob.operator.plugin.text import Style, clock, duration, familiar, moment

_WIDTH = 80

_DOING = {
    constants.PHASE_PENDING: "has not started to train",
    constants.PHASE_FORMING: "is forming its first round",
    constants.PHASE_RUNNING: "trains",
    constants.PHASE_REFORMING: "is forming a new round",
    constants.PHASE_SUSPENDED: "is suspended",
    constants.PHASE_SUCCEEDED: "has succeeded",
    constants.PHASE_FAILED: "has failed",
    constants.PHASE_TERMINATING: "is being deleted",
}

_HELP = {
    constants.REASON_UNSCHEDULABLE: (
        "It goes on by itself once the cluster has room. Or ask for fewer nodes (kubectl scale), let it train on fewer "
        "(spec.minReplicas), or suspend it and lower what a pod requests."
    ),
    constants.REASON_IMAGE_PULL: (
        "Check the image's name, and that the nodes may pull it (imagePullSecrets). The template can be changed while "
        "spec.suspend is true."
    ),
    constants.REASON_CONTAINER_NOT_STARTED: (
        "Look at the pod (kubectl describe pod, kubectl logs). The template can be changed while spec.suspend is true."
    ),
    constants.REASON_CREATION_REFUSED: (
        "It is tried again at least once a minute and goes on by itself once the quota or the policy allows it."
    ),
    constants.REASON_NO_CALLER: (
        "See what the worker prints (kubectl logs) and whether a NetworkPolicy is in the way; calls that were refused "
        "are in the operator's log."
    ),
    constants.REASON_INVALID_SPEC: "Correct the spec.",
    constants.REASON_INVALID_TEMPLATE: "Create the job anew with a template that the API server accepts.",
    constants.REASON_LAST_CALL: "Nothing needs to be done: it starts when the last call is over or all have joined.",
    constants.REASON_NOT_SERVED: "Check the operator: its rendezvous does not serve this job.",
    constants.REASON_SUSPENDED: "To go on, set spec.suspend to false.",
    constants.REASON_MAX_RESTARTS: (
        "Look at the last failure (kubectl elasticjob status). A job that is over stays so: correct it and create it "
        "anew, or allow more in spec.restartPolicy.maxRestarts."
    ),
}


def why(body: Mapping[str, Any], *, now: datetime, style: Style) -> list[str]:
    """The paragraph, in lines."""
    job = Job(body)
    sentences = _sentences(job, now) if job.is_seen else _unseen(job, now)
    paragraph = " ".join(sentence for sentence in sentences if sentence)
    return textwrap.wrap(familiar(paragraph, now), min(style.width or _WIDTH, _WIDTH), break_long_words=False)


def _unseen(job: Job, now: datetime) -> list[str]:
    what = "in its present form" if job.raw_status else "at all"
    age = f" It was created {duration((now - job.created).total_seconds())} ago." if job.created else ""
    return [
        f"{job.name}: the operator has not looked at it {what} yet.{age}",
        "If that does not change within seconds, check that the operator runs and watches this namespace.",
    ]


def _sentences(job: Job, now: datetime) -> list[str]:
    ready = job.status.condition(constants.READY)
    rendezvous_ready = job.status.condition(constants.RENDEZVOUS_READY)
    return [
        _lead(job, ready, now),
        _sentence(ready.message) if ready else "",
        _HELP.get(ready.reason, "") if ready else "",
        _troubled(rendezvous_ready),
        _deadline(job, now),
        _last_change(job, now),
    ]


def _lead(job: Job, ready: Condition | None, now: datetime) -> str:
    doing = _DOING.get(job.status.phase, "is in an unknown phase")
    since = moment(ready.last_transition_time) if ready else None
    return f"{job.name} {doing}{_since(since, now)}." if since else f"{job.name} {doing}."


def _since(at: datetime, now: datetime) -> str:
    return f", for {duration((now - at).total_seconds())} (since {clock(at, now)})"


def _sentence(message: str) -> str:
    text = message.strip().rstrip(".")
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _troubled(condition: Condition | None) -> str:
    """What the rendezvous complains of; how it is otherwise the first condition tells."""
    told = condition is not None and ("cannot be" in condition.message or condition.reason == constants.REASON_HELD)
    return _sentence(condition.message) if condition is not None and told else ""


def _deadline(job: Job, now: datetime) -> str:
    """The limit of the whole job; that of the present wait is part of the condition's message."""
    limit, started = number(job.spec, "activeDeadlineSeconds"), moment(job.status.start_time)
    if job.is_over or not limit or started is None:
        return ""
    left = started.timestamp() + limit - now.timestamp()
    return f"It may run for another {duration(left)} (activeDeadlineSeconds)."


def _last_change(job: Job, now: datetime) -> str:
    if job.is_over or not job.status.history:
        return ""
    entry = job.status.history[-1]
    at, cause = moment(str(entry.get("time"))), entry.get("cause")
    if at is None or not cause:
        return ""
    failures = number(mapping(job.raw_status, "restarts"), "failures")
    counted = f" Failures counted so far: {failures}." if failures else ""
    return f"Round {number(entry, 'round')} formed at {clock(at, now)} because: {cause}.{counted}"
