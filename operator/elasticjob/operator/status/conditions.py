"""The conditions of a job (metav1), readable by kstatus.

kstatus tools take a job as *current* when `Ready` is True, as *in progress* when `Reconciling` is, as *failed* when
`Stalled` is. So a job that has succeeded stays `Ready`, since it reached what was wanted, and one that failed is
`Stalled`. `lastTransitionTime` changes with the status of a condition only.
"""

from elasticjob.operator import constants
from elasticjob.operator.model import Condition, ElasticJobStatus
from elasticjob.operator.policies.obstacles import joined_messages
from elasticjob.operator.situation import Situation, Stage
from elasticjob.operator.status.explanation import explain, obstacles, quiet, unserved
from elasticjob.rendezvous.orders import RunState
from elasticjob.rendezvous.wording import counted

MESSAGE_LIMIT = 2048
"""Longest message of a condition, in characters; the API allows 32,768."""

Words = tuple[str, str, str]
"""Status, reason and message of one condition."""

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"

_STATE_REASONS = {
    RunState.WAITING: constants.REASON_WAITING_FOR_NODES,
    RunState.LAST_CALL: constants.REASON_LAST_CALL,
    RunState.FORMED: constants.REASON_ROUND_FORMED,
    RunState.REFORMING: constants.REASON_REFORMING,
    RunState.CLOSED: constants.REASON_CLOSED,
}


def conditions(situation: Situation) -> tuple[Condition, ...]:
    """All conditions, in their fixed order."""
    words = {
        Stage.ACTIVE: _active,
        Stage.SUSPENDED: _suspended,
        Stage.FINISHED: _finished,
        Stage.DELETING: _deleting,
    }[situation.stage](situation)
    return stamped(words, before=situation.before, generation=situation.job.generation, stamp=situation.stamp)


def stamped(words: dict[str, Words], *, before: ElasticJobStatus, generation: int, stamp: str) -> tuple[Condition, ...]:
    """Conditions from their words. A type without words keeps those that it had."""
    result = []
    for type_ in constants.CONDITION_TYPES:
        old = before.condition(type_)
        kept = (old.status, old.reason, old.message) if old else (UNKNOWN, constants.REASON_STARTING, "")
        status, reason, message = words.get(type_, kept)
        result.append(
            Condition(
                type=type_,
                status=status,
                reason=reason,
                message=message[:MESSAGE_LIMIT],
                observed_generation=generation,
                last_transition_time=old.last_transition_time if old and old.status == status else stamp,
            )
        )
    return tuple(result)


def _active(situation: Situation) -> dict[str, Words]:
    return {
        constants.READY: _ready(situation),
        constants.RECONCILING: _reconciling(situation),
        constants.STALLED: (FALSE, constants.REASON_AS_EXPECTED, ""),
        constants.SUCCEEDED: (FALSE, constants.REASON_NOT_FINISHED, ""),
        constants.FAILED: (FALSE, constants.REASON_NOT_FINISHED, ""),
        constants.SUSPENDED: (FALSE, constants.REASON_RUNNING, ""),
        constants.RENDEZVOUS_READY: _rendezvous_ready(situation),
    }


def _ready(situation: Situation) -> Words:
    if situation.formed:
        return TRUE, constants.REASON_ROUND_FORMED, _trains(situation)
    if situation.view is None and situation.before.is_true(constants.READY):
        why = joined_messages(unserved(situation))
        taking = "training goes on while the rendezvous is being taken over"
        return TRUE, constants.REASON_NOT_SERVED, f"{taking}: {why}" if why else taking
    found = obstacles(situation)
    return FALSE, found[0].reason if found else _rendezvous_ready(situation)[1], explain(situation)


def _trains(situation: Situation) -> str:
    wanted, active = situation.wanted, len(situation.joined)
    head = f"round {situation.view.round if situation.view else 0} trains on {active} of {counted(wanted, 'node')}"
    if active >= wanted:
        silent = joined_messages(quiet(situation))
        rounded = f"{head}; {situation.rounding}" if situation.rounding else head
        return f"{rounded}. {silent}" if silent else rounded
    return f"{head}. {explain(situation)}"


def _reconciling(situation: Situation) -> Words:
    if not situation.formed:
        started = situation.ledger.round > situation.ledger.base_round
        reason = constants.REASON_REFORMING if started else constants.REASON_STARTING
        if situation.view is None and situation.before.is_true(constants.READY):
            return FALSE, constants.REASON_SETTLED, ""
        return TRUE, reason, explain(situation)
    wanted = situation.ledger.unfinished
    if len(wanted.intersection(node.index for node in situation.joined.values())) >= situation.wanted:
        return FALSE, constants.REASON_SETTLED, ""
    return TRUE, constants.REASON_SCALING, explain(situation)


def _rendezvous_ready(situation: Situation) -> Words:
    view = situation.view
    if view is None:
        why = joined_messages(unserved(situation))
        waiting = "the rendezvous does not serve this run yet"
        return UNKNOWN, constants.REASON_NOT_SERVED, f"{waiting}: {why}" if why else waiting
    held = " Membership is held while nodes report after a takeover." if view.held else ""
    status = TRUE if view.state is RunState.FORMED else FALSE
    reason = constants.REASON_HELD if view.held else _STATE_REASONS[view.state]
    cause = f": {view.cause}" if view.cause else ""
    unstored = f" Its state cannot be stored: {view.details['storeError']}" if "storeError" in view.details else ""
    return status, reason, f"round {view.round}, {view.state.value}{cause}.{held}{unstored}"


def _suspended(situation: Situation) -> dict[str, Words]:
    leaving = len(situation.pods)
    message = f"{counted(leaving, 'pod')} {'is' if leaving == 1 else 'are'} leaving" if leaving else "no pod exists"
    words = (constants.REASON_SUSPENDED, message)
    return {
        **_active(situation),
        constants.READY: (FALSE, *words),
        constants.RECONCILING: (TRUE if leaving else FALSE, *words),
        constants.SUSPENDED: (TRUE, *words),
        constants.RENDEZVOUS_READY: (FALSE, *words),
    }


def _finished(situation: Situation) -> dict[str, Words]:
    assert situation.verdict is not None
    won = situation.verdict.succeeded
    words = (situation.verdict.reason, situation.verdict.message)
    return {
        **_active(situation),
        constants.READY: (TRUE if won else FALSE, *words),
        constants.RECONCILING: (FALSE, constants.REASON_SETTLED, ""),
        constants.STALLED: (FALSE, constants.REASON_AS_EXPECTED, "") if won else (TRUE, *words),
        constants.SUCCEEDED: (TRUE if won else FALSE, *words),
        constants.FAILED: (FALSE if won else TRUE, *words),
        constants.RENDEZVOUS_READY: (FALSE, constants.REASON_CLOSED, "the job is over"),
    }


def _deleting(situation: Situation) -> dict[str, Words]:
    words = (constants.REASON_DELETED, "the job is being deleted")
    return {constants.READY: (FALSE, *words), constants.RECONCILING: (TRUE, *words)}
