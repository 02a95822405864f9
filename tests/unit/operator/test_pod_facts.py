"""Reading raw pods."""

from typing import Any

import pytest

from elasticjob.operator.pod_facts import read_pod, read_pods


def raw(index: str | None = "1", attempt: str | None = "0", **parts: Any) -> dict[str, Any]:
    labels = {"elasticjob.dev/node-index": index, "elasticjob.dev/attempt": attempt}
    kept = {name: value for name, value in labels.items() if value is not None}
    return {"metadata": {"name": "digits-1-0", "uid": "u1", "labels": kept}, **parts}


def test_a_fresh_pod_is_pending() -> None:
    facts = read_pod(raw(), "worker")
    assert facts is not None
    assert (facts.index, facts.attempt, facts.phase, facts.end, facts.ready) == (1, 0, "Pending", None, False)


@pytest.mark.parametrize("label", [None, "", "x", "-1", "1.5", "１", "99999999999", "20000"])
def test_a_pod_without_a_usable_index_is_none_of_ours(label: str | None) -> None:
    assert read_pod(raw(index=label), "worker") is None


@pytest.mark.parametrize("label", [None, "", "x"])
def test_a_pod_without_a_usable_attempt_is_none_of_ours(label: str | None) -> None:
    assert read_pod(raw(attempt=label), "worker") is None


def test_one_pod_with_damaged_labels_does_not_hide_the_others() -> None:
    assert [facts.index for facts in read_pods([raw("2"), raw("x"), raw("0")], "worker")] == [0, 2]


def test_ends_in_place_are_those_of_the_worker_container() -> None:
    statuses = [{"name": "proxy", "restartCount": 9}, {"name": "worker", "restartCount": 2}]
    facts = read_pod(raw(status={"phase": "Running", "containerStatuses": statuses}), "worker")
    assert facts is not None
    assert facts.ends_in_place.count == 2
