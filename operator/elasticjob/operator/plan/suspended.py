"""A suspended job: no pods, no deadline running, nothing counted.

The run is not closed, since a closed run never opens again: it is left without nodes. Resuming starts all nodes anew,
with whatever the spec says by then, in rounds that follow the ones before.
"""

from elasticjob.operator.actions import Plan
from elasticjob.operator.model import ElasticJobSpec
from elasticjob.operator.observed import Observed
from elasticjob.operator.plan.drafting import deletions, draft
from elasticjob.operator.plan.orders import run_orders
from elasticjob.operator.plan.protection import protection
from elasticjob.operator.pod_facts import read_pods
from elasticjob.operator.policies.accounting import suspend
from elasticjob.operator.situation import Situation, Stage


def plan_suspended(observed: Observed, spec: ElasticJobSpec) -> Plan:
    """Let all pods leave politely."""
    pods = read_pods(observed.pods, spec.worker_container)
    view = observed.view
    formed = view.round if view is not None and view.run_id == observed.job.uid else 0
    ledger = suspend(observed.job.status.ledger, pods, formed)
    situation = Situation(observed=observed, spec=spec, stage=Stage.SUSPENDED, pods=pods, ledger=ledger)
    orders = run_orders(situation) if pods else None
    return draft(situation, actions=(*deletions(pods, "Suspended"), *protection(situation)), orders=orders)
