"""The last step of every plan: what has been decided, in the form of a `Plan`."""

from collections.abc import Iterable, Mapping
from typing import Any

from elasticjob.operator.actions import Action, DeletePod, Plan
from elasticjob.operator.model import Ledger
from elasticjob.operator.plan.events import event_facts
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.situation import Situation
from elasticjob.operator.status import compose
from elasticjob.operator.status.silence import seconds_until_told
from elasticjob.rendezvous.orders import RunOrders


def draft(
    situation: Situation,
    *,
    actions: tuple[Action, ...] = (),
    orders: RunOrders | None = None,
    delays: Iterable[float | None] = (),
) -> Plan:
    """A plan for a situation.

    Args:
        situation: The situation with its new ledger.
        actions: What is to be done.
        orders: What the rendezvous is told.
        delays: Seconds until something is due; None for nothing.
    """
    status = compose(situation)
    stored = situation.job.stored_status
    is_new_verdict = situation.verdict is not None and not situation.before.completion_time
    due = (*delays, seconds_until_told(situation))
    return Plan(
        charge_first=is_new_verdict or binding(situation.ledger) != binding(situation.before.ledger),
        status=None if status == stored else status,
        actions=actions,
        orders=orders,
        events=event_facts(situation, status),
        requeue_after=min((max(0.0, delay) for delay in due if delay is not None), default=None),
    )


def binding(ledger: Ledger) -> Mapping[str, Any]:
    """The part of a ledger that actions rely on. Having seen a pod or a round can as well be found out again."""
    relied_on = ("indexes", "ended", "completed", "failures", "disruptions", "baseRound")
    entries = ledger.to_dict()
    return {name: entries.get(name) for name in relied_on}


def deletions(pods: Iterable[PodFacts], reason: str) -> tuple[DeletePod, ...]:
    """Polite deletions of those pods whose deletion has not been asked for yet."""
    return tuple(DeletePod(name=pod.name, uid=pod.uid, reason=reason) for pod in pods if not pod.deleting)
