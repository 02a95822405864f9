"""A job that is being deleted: its children go by their ownerReferences; nothing is created any more."""

from elasticjob.operator.actions import Plan
from elasticjob.operator.model import ElasticJobSpec
from elasticjob.operator.observed import Observed
from elasticjob.operator.plan.drafting import draft
from elasticjob.operator.plan.orders import run_orders
from elasticjob.operator.pod_facts import read_pods
from elasticjob.operator.situation import Situation, Stage
from elasticjob.rendezvous.orders import CloseReason


def plan_deleting(observed: Observed, spec: ElasticJobSpec) -> Plan:
    """Close the run and say so."""
    before = observed.job.status
    situation = Situation(
        observed=observed,
        spec=spec,
        stage=Stage.DELETING,
        pods=read_pods(observed.pods, spec.worker_container),
        ledger=before.ledger,
        start_time=before.start_time,
        completion_time=before.completion_time,
    )
    orders = run_orders(situation, close=CloseReason.DELETED, message="the job is being deleted")
    return draft(situation, orders=orders)
