"""Whatever users write into what they may write: it is read or refused in words, never in another way."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.operator import constants
from elasticjob.operator.cache import Cache
from elasticjob.operator.model import ElasticJob
from elasticjob.operator.model.errors import ModelError
from elasticjob.operator.model.ledger import Ledger
from elasticjob.operator.model.status import ElasticJobStatus
from elasticjob.operator.pod_facts import read_pod
from elasticjob.operator.resources import JOBS, PODS
from elasticjob.operator.situation import moment
from tests.unit.examples import FEW

VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63 - 1,
    -(2**63),
    1.5,
    "",
    "x",
    "-",
    "0-",
    "-0",
    "9-0",
    "0-20001",
    "0-20000," * 4000,
    "0-20000:1 " * 4000,
    "1:-1",
    "0:" + "9" * 5000,
    "٣",
    "1_0",
    "\x00",
    "\ud800",
    "a" * 100_000,
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2030-13-01T00:00:00Z",
    "2030-01-01",
    [],
    [None],
    ["x", 1, {}],
    {},
    {"": None},
    {"type": ["Ready"], "status": {}},
]
FIELDS = sorted(
    {
        *("phase", "startTime", "completionTime", "conditions", "rendezvous", "nodes", "history", "ledger"),
        *("indexes", "seen", "ended", "completed", "failures", "roundFailures", "suspects", "round", "chargedAt"),
        *("runId", "epoch", "members", "rankZero", "deadline", "participants", "state"),
        *("index", "lastFailure", "exitCode", "type", "status", "observedGeneration"),
    }
)
ANYTHING = st.recursive(
    st.sampled_from(VALUES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)


def job_with(status: Any, **metadata: Any) -> dict[str, Any]:
    meta = {"namespace": "train", "name": "digits", "uid": "u", "resourceVersion": "1", **metadata}
    return {"metadata": meta, "spec": {}, "status": status}


def read_whole(status: Any) -> None:
    body = job_with(status)
    Cache().see(JOBS, body)
    job = ElasticJob.from_dict(body)
    job.status.ledger.to_dict()
    job.status.rendezvous.to_dict()
    for stamp in (job.status.start_time, job.status.ledger.charged_at, job.status.rendezvous.deadline):
        moment(stamp)


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_a_status_with_any_value_in_any_field_is_read(number: int) -> None:
    value = VALUES[number]
    read_whole(value)
    whole = dict.fromkeys(FIELDS, value)
    read_whole(whole)
    read_whole({**whole, "ledger": whole, "rendezvous": whole, "nodes": [whole, value], "conditions": [whole, value]})
    Ledger.from_dict(whole)


@FEW
@given(ANYTHING)
def test_any_status_is_read(status: Any) -> None:
    read_whole(status)
    if isinstance(status, Mapping):
        ElasticJobStatus.from_dict(status)


@FEW
@given(ANYTHING)
def test_a_spec_of_any_form_is_read_or_refused_in_words(spec: Any) -> None:
    try:
        job = ElasticJob.from_dict({**job_with({}), "spec": spec})
    except ModelError:
        return
    assert job.spec is not None or job.spec_error


TEXTS = [value for value in VALUES if isinstance(value, str)]


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_a_pod_with_any_texts_is_read_or_none_of_ours(number: int) -> None:
    text = TEXTS[number]
    names = (constants.LABEL_NODE_INDEX, constants.LABEL_ATTEMPT, constants.LABEL_JOB_UID, constants.LABEL_JOB_NAME)
    for labels in (dict.fromkeys(names, text), {**dict.fromkeys(names, "0"), constants.LABEL_JOB_NAME: text}):
        pod = hostile_pod(text, labels)
        Cache().see(PODS, pod)
        read_pod(pod, "worker")
        read_pod(pod, text)


def hostile_pod(text: str, labels: dict[str, str]) -> dict[str, Any]:
    ended = {"exitCode": -1, "reason": text, "message": text, "startedAt": text, "finishedAt": text}
    container = {"name": "worker", "state": {"terminated": ended}, "lastState": {"terminated": ended}}
    condition = {"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text}
    named = [{**condition, "type": type_} for type_ in ("Ready", "DisruptionTarget", "PodScheduled")]
    return {
        "metadata": {
            "namespace": "train",
            "name": "digits-0-0",
            "uid": "p",
            "resourceVersion": "2",
            "labels": labels,
            "annotations": {constants.ANNOTATION_LEAVE_FIRST: text, text: text},
            "creationTimestamp": text,
            "deletionTimestamp": text,
        },
        "spec": {"nodeName": text, "containers": [{"name": "worker"}], "initContainers": []},
        "status": {
            "phase": text,
            "reason": text,
            "message": text,
            "conditions": [condition, *named],
            "containerStatuses": [{**container, "restartCount": 2**31 - 1}, {**container, "name": text}],
        },
    }
