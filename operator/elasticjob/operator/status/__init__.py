"""What users see: the status of a job, composed from a situation. Pure."""

from elasticjob.operator.status.compose import compose

__all__ = ["compose"]
