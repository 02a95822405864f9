"""A job that is over: its run is closed, its pods go by policy, and in the end it goes itself."""

from datetime import timedelta

from elasticjob.operator import constants
from elasticjob.operator.actions import Action, DeleteJob, Plan
from elasticjob.operator.model import ElasticJobSpec, ElasticJobStatus
from elasticjob.operator.observed import Observed
from elasticjob.operator.plan.drafting import deletions, draft
from elasticjob.operator.plan.orders import run_orders
from elasticjob.operator.plan.protection import protection
from elasticjob.operator.pod_facts import read_pods
from elasticjob.operator.policies.clean_up import clean_up
from elasticjob.operator.policies.ttl import seconds_to_live
from elasticjob.operator.policies.verdict import Verdict
from elasticjob.operator.situation import Situation, Stage, moment
from elasticjob.rendezvous.orders import CloseReason, RunOrders


def stored_verdict(status: ElasticJobStatus) -> Verdict | None:
    """The verdict on record. It is final."""
    for type_ in (constants.SUCCEEDED, constants.FAILED):
        condition = status.condition(type_)
        if condition is not None and condition.status == "True":
            won = type_ == constants.SUCCEEDED
            return Verdict(succeeded=won, reason=condition.reason, message=condition.message)
    return None


def plan_finished(observed: Observed, spec: ElasticJobSpec) -> Plan:
    """A job whose verdict is on record."""
    before = observed.job.status
    situation = Situation(
        observed=observed,
        spec=spec,
        stage=Stage.FINISHED,
        pods=read_pods(observed.pods, spec.worker_container),
        ledger=before.ledger,
        verdict=stored_verdict(before),
        start_time=before.start_time,
        completion_time=before.completion_time,
    )
    return wind_up(situation)


def wind_up(situation: Situation) -> Plan:
    """What is left to do for a finished job."""
    now, spec = situation.observed.now, situation.spec
    completed = moment(situation.completion_time) or now
    close_timeout = float(spec.rendezvous.close_timeout)
    clean = clean_up(spec.clean_pod_policy, situation.pods, completed=completed, close_timeout=close_timeout, now=now)
    stored = moment(situation.before.completion_time)
    life = seconds_to_live(spec.ttl_after_finished, completed=stored, now=now)
    actions: tuple[Action, ...] = (*deletions(clean.pods, constants.POD_JOB_FINISHED), *protection(situation))
    if life is not None and life <= 0:
        actions, life = (DeleteJob(name=situation.job.name, uid=situation.job.uid),), None
    closing = (completed + timedelta(seconds=close_timeout) - now).total_seconds()
    orders = _closing_orders(situation, closing)
    delays = (clean.seconds_left, life, closing if closing > 0 else None)
    return draft(situation, actions=actions, orders=orders, delays=delays)


def _closing_orders(situation: Situation, closing: float) -> RunOrders | None:
    """Agents are answered for the close time-out, and as long as one of them may still ask."""
    if closing <= 0 and all(pod.end is not None for pod in situation.pods):
        return None
    assert situation.verdict is not None
    reason = CloseReason.SUCCEEDED if situation.verdict.succeeded else CloseReason.FAILED
    return run_orders(situation, close=reason, message=situation.verdict.message)
