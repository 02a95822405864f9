"""The kinds of objects that the operator reads and writes, and nothing else."""

from elasticjob.operator import constants
from elasticjob.operator.ports import Resource

JOBS = Resource(group=constants.GROUP, version=constants.VERSION, plural=constants.PLURAL)
PODS = Resource(group="", version="v1", plural="pods")
SERVICES = Resource(group="", version="v1", plural="services")
DISRUPTION_BUDGETS = Resource(group="policy", version="v1", plural="poddisruptionbudgets")
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps")
SECRETS = Resource(group="", version="v1", plural="secrets")
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases")
EVENTS = Resource(group="events.k8s.io", version="v1", plural="events")
ACCESS_REVIEWS = Resource(group="authorization.k8s.io", version="v1", plural="selfsubjectaccessreviews")
TOKEN_REVIEWS = Resource(group="authentication.k8s.io", version="v1", plural="tokenreviews")

WATCHED = (JOBS, PODS, SERVICES, DISRUPTION_BUDGETS)
"""What the cache holds. Rendezvous state is not watched: only its keeper reads and writes it."""


KINDS = {JOBS: constants.KIND, PODS: "Pod", SERVICES: "Service", DISRUPTION_BUDGETS: "PodDisruptionBudget"}
"""How those are called where people read of them."""


def selector_of(resource: Resource) -> str:
    """The label selector by which objects of one kind are listed and watched."""
    return "" if resource == JOBS else constants.LABEL_JOB_UID
