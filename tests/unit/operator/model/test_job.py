"""Reading objects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.operator.model import ElasticJob, ElasticJobSpec, ElasticJobStatus, ModelError
from elasticjob.operator.model.stamps import format_time, parse_time
from tests.unit.examples import FEW
from tests.unit.operator.world import START, job_body, running, template

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


def spec(**fields: Any) -> ElasticJobSpec:
    return ElasticJobSpec.from_dict({"template": template(), **fields})


def test_a_template_is_all_that_is_needed() -> None:
    plain = spec()
    assert (plain.replicas, plain.min_nodes, plain.max_nodes) == (1, 1, 1)
    assert (plain.nproc_per_node, plain.max_restarts, plain.worker_container) == ("1", 3, "worker")


@pytest.mark.parametrize(
    ("fields", "least", "most"),
    [
        ({"replicas": 4}, 4, 4),
        ({"replicas": 4, "minReplicas": 2}, 2, 4),
        ({"replicas": 4, "maxReplicas": 8}, 4, 8),
        ({"replicas": 4, "minReplicas": 2, "maxReplicas": 8}, 2, 8),
        ({"replicas": 7, "stepSize": 2}, 6, 6),
        ({"replicas": 7, "minReplicas": 2, "maxReplicas": 9, "stepSize": 2}, 2, 8),
    ],
)
def test_limits_that_are_absent_follow_the_size(fields: dict[str, int], least: int, most: int) -> None:
    found = spec(**fields)
    assert (found.min_nodes, found.max_nodes) == (least, most)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"replicas": 0}, "spec.replicas must be a whole number from 1 to 10000, not 0"),
        ({"replicas": True}, "spec.replicas must be a whole number from 1 to 10000, not True"),
        ({"replicas": 1, "minReplicas": 2}, r"spec.minReplicas \(2\) must not exceed spec.replicas \(1\)"),
        ({"replicas": 3, "maxReplicas": 2}, r"spec.maxReplicas \(2\) must not be less than spec.replicas \(3\)"),
        ({"nprocPerNode": "x"}, "spec.nprocPerNode must be a positive number, auto, gpu or cpu, not 'x'"),
        ({"nprocPerNode": 0}, "spec.nprocPerNode must be a positive number"),
        ({"replicas": 2, "stepSize": 4}, r"spec.stepSize \(4\) must not exceed spec.replicas \(2\)"),
        (
            {"replicas": 8, "minReplicas": 3, "stepSize": 2},
            r"spec.minReplicas \(3\) must be a multiple of spec.stepSize \(2\)",
        ),
        ({"waitForReplicasSeconds": -1}, "spec.waitForReplicasSeconds must be a whole number from 0 to 604800"),
        ({"waitForReplicasSeconds": 60}, "spec.waitForReplicasSeconds needs spec.minReplicas"),
        (
            {"minReplicas": 1, "waitForReplicasSeconds": 60, "startupDeadlineSeconds": 60},
            r"spec.waitForReplicasSeconds \(60\) must be less than spec.startupDeadlineSeconds \(60\)",
        ),
        (
            {"minReplicas": 1, "waitForReplicasSeconds": 60, "activeDeadlineSeconds": 50},
            r"spec.waitForReplicasSeconds \(60\) must be less than spec.activeDeadlineSeconds \(50\)",
        ),
        ({"suspend": "yes"}, "spec.suspend must be true or false, not 'yes'"),
        ({"successPolicy": "Most"}, "spec.successPolicy must be one of All, RankZero, Any, not 'Most'"),
        ({"rendezvous": []}, r"spec.rendezvous must be an object, not \[\]"),
        ({"rendezvous": {"joinTimeoutSeconds": 0}}, "spec.rendezvous.joinTimeoutSeconds must be a whole number from 1"),
        ({"rendezvous": {"backend": 7}}, "spec.rendezvous.backend must be a string, not 7"),
        ({"workerContainer": "x"}, "spec.workerContainer is 'x'; spec.template has the containers worker"),
        ({"template": {"spec": {}}}, "spec.template.spec.containers must name at least one container"),
        ({"template": {"spec": {"containers": 7}}}, "spec.template.spec.containers must be a list, not 7"),
    ],
)
def test_an_error_names_the_field_the_value_and_the_limit(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        spec(**fields)


@pytest.mark.parametrize(
    ("names", "wanted", "expected"),
    [(["a", "worker"], None, "worker"), (["a", "b"], None, "a"), (["a", "worker"], "a", "a"), (["a"], "a", "a")],
)
def test_the_worker_is_found_by_name(names: list[str], wanted: str | None, expected: str) -> None:
    users = {"spec": {"containers": [{"name": name} for name in names]}}
    assert spec(template=users, workerContainer=wanted).worker_container == expected


def test_a_spec_that_cannot_be_understood_does_not_hide_the_job() -> None:
    job = ElasticJob.from_dict(job_body(replicas="x"))
    assert job.spec is None
    assert job.spec_error.startswith("spec.replicas")
    assert job.name == "digits"


def test_a_deletion_is_seen() -> None:
    body = job_body()
    body["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    assert ElasticJob.from_dict(body).deletion == "2030-01-01T12:00:00Z"


def test_what_was_stored_is_read_back_as_it_was() -> None:
    world = running(3, minReplicas=1)
    world.exit(1, 137, why="OOMKilled")
    world.settle()
    status = ElasticJobStatus.from_dict(world.status)
    assert status.ledger.to_dict() == world.status["ledger"]
    assert status.rendezvous.to_dict() == world.status["rendezvous"]
    assert [node.to_dict() for node in status.nodes] == world.status["nodes"]
    assert [condition.to_dict() for condition in status.conditions] == world.status["conditions"]


@FEW
@given(st.dictionaries(st.sampled_from(["conditions", "nodes", "history", "ledger", "rendezvous", "phase"]), JSON))
def test_a_damaged_status_never_stops_the_operator(status: dict[str, Any]) -> None:
    ElasticJobStatus.from_dict(status)


@FEW
@given(st.dictionaries(st.sampled_from(["indexes", "seen", "ended", "completed", "failures", "round"]), JSON))
def test_a_damaged_ledger_counts_as_absent(ledger: dict[str, Any]) -> None:
    read = ElasticJobStatus.from_dict({"ledger": ledger}).ledger
    assert all(isinstance(index, int) for index in read.indexes)


def test_stamps_come_back_in_whole_seconds() -> None:
    assert format_time(START.replace(microsecond=999_999)) == "2030-01-01T12:00:00Z"
    assert parse_time("2030-01-01T12:00:00Z") == START


def test_a_stamp_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        parse_time("2030-01-01T12:00:00")


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z"])
def test_a_stamp_that_utc_cannot_express_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="out of range"):
        parse_time(text)
