"""What users are told as Events: changes between the stored status and the new one, so that nothing is told twice."""

from collections.abc import Iterable, Mapping
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.actions import EventFact
from elasticjob.operator.pods import node_name
from elasticjob.operator.policies.accounting import NodeEnd
from elasticjob.operator.policies.pod_end import EndKind
from elasticjob.operator.situation import Situation, Stage
from elasticjob.rendezvous.wording import counted

SINGLE_ENDS = 5
"""More ends of one kind at a time are told in one Event."""

_OBSTACLES = frozenset(
    {
        constants.REASON_CREATION_REFUSED,
        constants.REASON_UNSCHEDULABLE,
        constants.REASON_IMAGE_PULL,
        constants.REASON_CONTAINER_NOT_STARTED,
        constants.REASON_NO_CALLER,
    }
)

_END_REASONS = {
    EndKind.SUCCEEDED: (constants.NORMAL, constants.EVENT_NODE_SUCCEEDED, "succeeded"),
    EndKind.FAILED: (constants.WARNING, constants.EVENT_POD_FAILED, "failed"),
    EndKind.DISRUPTED: (constants.WARNING, constants.EVENT_POD_LOST, "was disrupted"),
}


def event_facts(situation: Situation, status: Mapping[str, Any]) -> tuple[EventFact, ...]:
    """The Events of one planning, in the order of what happened."""
    return (
        *_life(situation),
        *_ends(situation),
        *_scaling(situation),
        *_obstacle(situation, status),
        *_verdict(situation),
    )


def _life(situation: Situation) -> Iterable[EventFact]:
    was_suspended = situation.before.is_true(constants.SUSPENDED)
    if situation.stage is Stage.SUSPENDED and not was_suspended:
        yield _normal(constants.EVENT_SUSPENDED, "spec.suspend is set: all pods leave", "Suspend")
    if situation.stage is Stage.ACTIVE and not situation.before.start_time:
        spec = situation.spec
        words = f"{counted(spec.size, 'node')} (min {spec.min_nodes}, max {spec.max_nodes})"
        reason = constants.EVENT_RESUMED if was_suspended else constants.EVENT_STARTED
        yield _normal(reason, f"starting {words}", "Resume" if was_suspended else "Start")


def _ends(situation: Situation) -> Iterable[EventFact]:
    for kind, (type_, reason, words) in _END_REASONS.items():
        ends = [one for one in situation.ends if one.end.kind is kind]
        if len(ends) > SINGLE_ENDS:
            first = _told(situation, ends[0], words)
            yield EventFact(type=type_, reason=reason, message=f"{len(ends)} nodes {words}; {first}", action="Count")
            continue
        for one in ends:
            pod = one.pod
            yield EventFact(
                type=type_,
                reason=reason,
                message=_told(situation, one, words),
                action="Count",
                pod=pod.name if pod else "",
                pod_uid=pod.uid if pod else "",
            )


def _told(situation: Situation, one: NodeEnd, words: str) -> str:
    code = f", exit code {one.end.exit_code}" if one.end.exit_code is not None else ""
    detail = f": {one.end.message}" if one.end.message else ""
    again = " and is restarted in its pod" if one.in_place else ""
    return f"{node_name(situation.job.name, one.index)} {words}{again} ({one.end.reason}{code}){detail}"


def _scaling(situation: Situation) -> Iterable[EventFact]:
    if situation.ledger.resizes > situation.before.ledger.resizes:
        before, now = len(situation.before.ledger.indexes), len(situation.ledger.indexes)
        yield _normal(constants.EVENT_SCALED, f"from {before} to {counted(now, 'node')}", "Scale")


def _obstacle(situation: Situation, status: Mapping[str, Any]) -> Iterable[EventFact]:
    before = situation.before.condition(constants.READY)
    now = next(one for one in status["conditions"] if one["type"] == constants.READY)
    if now["reason"] in _OBSTACLES and (before is None or before.reason != now["reason"]):
        yield EventFact(type=constants.WARNING, reason=constants.EVENT_OBSTACLE, message=now["message"], action="Start")


def _verdict(situation: Situation) -> Iterable[EventFact]:
    verdict = situation.verdict
    if verdict is None or situation.before.completion_time:
        return
    type_ = constants.NORMAL if verdict.succeeded else constants.WARNING
    reason = constants.EVENT_SUCCEEDED if verdict.succeeded else constants.EVENT_FAILED
    yield EventFact(type=type_, reason=reason, message=f"{verdict.reason}: {verdict.message}", action="Finish")


def _normal(reason: str, message: str, action: str) -> EventFact:
    return EventFact(type=constants.NORMAL, reason=reason, message=message, action=action)
