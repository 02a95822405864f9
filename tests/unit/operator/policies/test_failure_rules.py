"""Rules about ends of pods, as a table."""

from typing import Any

import pytest

from elasticjob.operator.model import ModelError
from elasticjob.operator.model.reader import Reader
from elasticjob.operator.model.rules import read_rules
from elasticjob.operator.policies.failure_rules import judged
from elasticjob.operator.policies.pod_end import EndKind, PodEnd

SUCCEEDED, FAILED, DISRUPTED = EndKind.SUCCEEDED, EndKind.FAILED, EndKind.DISRUPTED
EVICTED = {("DisruptionTarget", "True"), ("Ready", "False")}


def codes(action: str, operator: str, *values: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values)}}


def conditions(action: str, type_: str, **status: str) -> dict[str, Any]:
    return {"action": action, "onPodConditions": [{"type": "Other"}, {"type": type_, **status}]}


def end(kind: EndKind, code: int | None = None, reason: str = "Error") -> PodEnd:
    return PodEnd(kind=kind, reason=reason, exit_code=code)


@pytest.mark.parametrize(
    ("rules", "found", "kind", "fails"),
    [
        ([], end(FAILED, 1), FAILED, False),
        ([codes("Ignore", "In", 42)], end(FAILED, 42), DISRUPTED, False),
        ([codes("Ignore", "In", 42)], end(FAILED, 43), FAILED, False),
        ([codes("FailJob", "NotIn", 42)], end(FAILED, 43), FAILED, True),
        ([codes("FailJob", "NotIn", 42)], end(FAILED, 42), FAILED, False),
        ([codes("FailJob", "NotIn", 42)], end(FAILED, None), FAILED, False),
        ([codes("FailJob", "NotIn", 42)], end(SUCCEEDED, 0), SUCCEEDED, False),
        ([codes("FailJob", "NotIn", 42)], end(DISRUPTED, 137), DISRUPTED, False),
        ([codes("FailJob", "NotIn", 42)], end(FAILED, 1, "InitContainerFailed"), FAILED, False),
        ([codes("Count", "In", 1), codes("FailJob", "In", 1)], end(FAILED, 1), FAILED, False),
        ([codes("Ignore", "In", 2), codes("FailJob", "In", 1)], end(FAILED, 1), FAILED, True),
        ([conditions("Count", "DisruptionTarget")], end(DISRUPTED, 137), FAILED, False),
        ([conditions("Count", "DisruptionTarget", status="False")], end(DISRUPTED, 137), DISRUPTED, False),
        ([conditions("FailJob", "DisruptionTarget")], end(DISRUPTED), FAILED, True),
        ([conditions("FailJob", "DisruptionTarget")], end(SUCCEEDED, 0), SUCCEEDED, False),
        ([conditions("Ignore", "Missing")], end(FAILED, 1), FAILED, False),
        ([conditions("Ignore", "Ready", status="False")], end(FAILED, 1), DISRUPTED, False),
    ],
)
def test_the_first_rule_that_matches_decides(
    rules: list[dict[str, Any]], found: PodEnd, kind: EndKind, fails: bool
) -> None:
    result = judged(read_rules(Reader({"rules": rules}, "spec.restartPolicy")), found, EVICTED)
    assert (result.kind, bool(result.fails_job_by)) == (kind, fails)


def test_the_rule_is_named() -> None:
    rules = read_rules(Reader({"rules": [codes("Count", "In", 7), codes("FailJob", "In", 3)]}, ""))
    assert judged(rules, end(FAILED, 3), ()).fails_job_by == "restartPolicy.rules[1]"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"action": "Ignore"}, "rules[0].onExitCodes or onPodConditions must be set, and not both"),
        (codes("Retry", "In", 1), "rules[0].action must be one of Ignore, Count, FailJob, not 'Retry'"),
        (codes("Count", "Is", 1), "rules[0].onExitCodes.operator must be one of In, NotIn, not 'Is'"),
        (codes("Count", "In", 0), "rules[0].onExitCodes.values must be whole numbers from 1 to 255, not 0"),
        (conditions("Count", "Ready", status="Perhaps"), "rules[0].onPodConditions[1].status must be one of"),
        (7, "rules[0] must be an object, not 7"),
    ],
)
def test_a_rule_that_cannot_be_understood_is_named(rule: Any, message: str) -> None:
    with pytest.raises(ModelError) as refused:
        read_rules(Reader({"rules": [rule]}, "spec.restartPolicy"))
    assert message in str(refused.value)


def test_more_rules_than_the_definition_allows_are_refused() -> None:
    with pytest.raises(ModelError, match="has 21 rules, of at most 20"):
        read_rules(Reader({"rules": [codes("Count", "In", 1)] * 21}, "spec.restartPolicy"))
