"""The ElasticJob as typed, frozen data."""

from elasticjob.operator.model.errors import ModelError
from elasticjob.operator.model.job import ElasticJob
from elasticjob.operator.model.spec import ElasticJobSpec, RendezvousSpec
from elasticjob.operator.model.status import ElasticJobStatus

__all__ = ["ElasticJob", "ElasticJobSpec", "ElasticJobStatus", "ModelError", "RendezvousSpec"]
