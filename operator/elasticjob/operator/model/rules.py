"""Rules of `spec.restartPolicy.rules`: what an end of a pod leads to, in the shape of batch/v1's `podFailurePolicy`."""

from dataclasses import dataclass
from enum import Enum

from elasticjob.operator.model.reader import Reader

MAX_RULES = 20
"""As for Jobs."""
OPERATORS = ("In", "NotIn")
HIGHEST_EXIT_CODE = 255


class RuleAction(str, Enum):
    """What a rule leads to."""

    IGNORE = "Ignore"
    """The node is replaced and no failure is counted: it was a disruption."""
    COUNT = "Count"
    """The node is replaced and a failure is counted."""
    FAIL_JOB = "FailJob"
    """The job fails at once."""


@dataclass(frozen=True, kw_only=True)
class FailureRule:
    """One rule; it has either exit codes or conditions.

    Args:
        exit_codes: Exit codes of the worker container.
        negated: Whether the rule is about all other exit codes (operator `NotIn`).
        conditions: Type and status of pod conditions, of which one must be there.
    """

    action: RuleAction
    exit_codes: frozenset[int] = frozenset()
    negated: bool = False
    conditions: tuple[tuple[str, str], ...] = ()


def read_rules(policy: Reader) -> tuple[FailureRule, ...]:
    """Read `rules` of a restart policy.

    Raises:
        ModelError: A rule cannot be understood. The message names it by its number.
    """
    items = policy.items("rules")
    if len(items) > MAX_RULES:
        raise policy.error("rules", f"has {len(items)} rules, of at most {MAX_RULES}")
    return tuple(_rule(policy.item("rules", number)) for number in range(len(items)))


def _rule(rule: Reader) -> FailureRule:
    codes, conditions = rule.data.get("onExitCodes"), rule.items("onPodConditions")
    if (codes is None) == (not conditions):
        raise rule.error("onExitCodes", "or onPodConditions must be set, and not both")
    action = RuleAction(rule.choice("action", "", [one.value for one in RuleAction]))
    if codes is None:
        readers = [rule.item("onPodConditions", number) for number in range(len(conditions))]
        return FailureRule(action=action, conditions=tuple((one.text("type"), _status(one)) for one in readers))
    on_codes = rule.within("onExitCodes")
    negated = on_codes.choice("operator", "", OPERATORS) == "NotIn"
    return FailureRule(action=action, exit_codes=_exit_codes(on_codes), negated=negated)


def _status(condition: Reader) -> str:
    return condition.choice("status", "True", ("True", "False", "Unknown"))


def _exit_codes(reader: Reader) -> frozenset[int]:
    values = reader.items("values")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= HIGHEST_EXIT_CODE:
            raise reader.error("values", f"must be whole numbers from 1 to {HIGHEST_EXIT_CODE}, not {value!r}")
    return frozenset(values)
