"""Machines that replacements avoid."""

import copy
from typing import Any

import pytest

from elasticjob.operator.policies.suspects import averse, suspect

TERM = {
    "weight": 100,
    "preference": {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["m1"]}]},
}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("known", "machines", "expected"),
    [
        ("", "", ""),
        ("", "a", "a"),
        ("a", "b", "ba"),
        ("ba", "a", "ab"),
        ("", "aa", "a"),
        ("edcba", "f", "fedcb"),
        ("edcba", "", "edcba"),
        ("", "abcdefg", "gfedc"),
    ],
)
def test_the_last_few_are_remembered_and_older_ones_cool_down(known: str, machines: str, expected: str) -> None:
    assert suspect(tuple(known), machines) == tuple(expected)


def test_a_pod_that_was_on_no_machine_makes_none_suspect() -> None:
    assert suspect(("a",), ["", "b"]) == ("b", "a")


def test_a_pod_without_affinity_gets_a_preference() -> None:
    assert averse(None, ["m1"]) == {"nodeAffinity": {PREFERRED: [TERM]}}


def test_what_the_user_prefers_and_demands_stays() -> None:
    users: dict[str, Any] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]},
            PREFERRED: [{"weight": 1, "preference": {}}],
        },
    }
    before = copy.deepcopy(users)
    merged = averse(users, ["m1"])
    assert users == before
    assert merged["podAntiAffinity"] == users["podAntiAffinity"]
    assert merged["nodeAffinity"] == {**users["nodeAffinity"], PREFERRED: [{"weight": 1, "preference": {}}, TERM]}
