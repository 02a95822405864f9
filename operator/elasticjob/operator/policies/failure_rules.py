"""What the rules of a job make of a pod's end. Without a rule that matches the end is judged as usual.

Rules about exit codes are about what the worker did by itself: the code that is left by the signal of an eviction, or
by an init container, says nothing about it. They judge ends of pods and ends that the kubelet follows by a restart in
place alike: what is ignored or counted is then restarted by the kubelet instead of being replaced. Whatever rules say,
a node that succeeded has succeeded.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from elasticjob.operator import constants
from elasticjob.operator.model.rules import FailureRule, RuleAction
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.policies.pod_end import EndKind, PodEnd

_KINDS = {
    RuleAction.IGNORE: EndKind.DISRUPTED,
    RuleAction.COUNT: EndKind.FAILED,
    RuleAction.FAIL_JOB: EndKind.FAILED,
}


def apply_rules(rules: Sequence[FailureRule], pods: Collection[PodFacts]) -> tuple[PodFacts, ...]:
    """The pods with their ends as the rules judge them."""
    return tuple(_with_judged_ends(rules, pod) for pod in pods)


def _with_judged_ends(rules: Sequence[FailureRule], pod: PodFacts) -> PodFacts:
    end, last = pod.end, pod.ends_in_place.last
    if last is not None:
        pod = replace(pod, ends_in_place=replace(pod.ends_in_place, last=judged(rules, last, pod.conditions)))
    return pod if end is None else replace(pod, end=judged(rules, end, pod.conditions))


def judged(rules: Sequence[FailureRule], end: PodEnd, conditions: Collection[tuple[str, str]]) -> PodEnd:
    """The end as the first rule that matches judges it.

    Args:
        rules: The rules of the job, in their order.
        end: The end as it is judged without them.
        conditions: Type and status of the conditions of the pod.
    """
    if end.kind is EndKind.SUCCEEDED:
        return end
    for number, rule in enumerate(rules):
        if _matches(rule, end, conditions):
            name = f"restartPolicy.rules[{number}]" if rule.action is RuleAction.FAIL_JOB else ""
            return replace(end, kind=_KINDS[rule.action], fails_job_by=name)
    return end


def _matches(rule: FailureRule, end: PodEnd, conditions: Collection[tuple[str, str]]) -> bool:
    if rule.conditions:
        return any(one in conditions for one in rule.conditions)
    by_itself = end.kind is EndKind.FAILED and end.reason != constants.POD_INIT_FAILED
    return by_itself and end.exit_code is not None and (end.exit_code in rule.exit_codes) != rule.negated
