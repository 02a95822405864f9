"""The ElasticJob as typed, frozen data."""

from elasticjob.operator.model.errors import ModelError
from elasticjob.operator.model.job import ElasticJob
from elasticjob.operator.model.ledger import Ledger
from elasticjob.operator.model.spec import ElasticJobSpec, RendezvousSpec
from elasticjob.operator.model.status import (
    Condition,
    ElasticJobStatus,
    LastFailure,
    NodeStatus,
    RendezvousStatus,
)

__all__ = [
    "Condition",
    "ElasticJob",
    "ElasticJobSpec",
    "ElasticJobStatus",
    "LastFailure",
    "Ledger",
    "ModelError",
    "NodeStatus",
    "RendezvousSpec",
    "RendezvousStatus",
]
