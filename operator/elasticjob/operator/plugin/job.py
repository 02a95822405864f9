"""A job as it was read from the API, with its status understood."""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.model import ElasticJobStatus
from elasticjob.operator.model.fields import mapping, number, text
from elasticjob.operator.plugin.text import moment


class Job:
    """One job. What is missing or damaged counts as absent."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._metadata = mapping(body, "metadata")
        self.spec = mapping(body, "spec")
        self.raw_status = mapping(body, "status")

    @property
    def name(self) -> str:
        """Its name."""
        return text(self._metadata, "name")

    @property
    def namespace(self) -> str:
        """Where it is."""
        return text(self._metadata, "namespace")

    @property
    def uid(self) -> str:
        """Its identity."""
        return text(self._metadata, "uid")

    @property
    def created(self) -> datetime | None:
        """When it was created."""
        return moment(text(self._metadata, "creationTimestamp"))

    @property
    def replicas(self) -> int:
        """How many nodes it wants."""
        return number(self.spec, "replicas")

    @property
    def least(self) -> int:
        """The fewest nodes that train."""
        return number(self.spec, "minReplicas") or self.replicas

    @cached_property
    def status(self) -> ElasticJobStatus:
        """What was observed, understood."""
        return ElasticJobStatus.from_dict(self.raw_status)

    @property
    def is_seen(self) -> bool:
        """Whether the operator has looked at it in its present form."""
        wanted = number(self._metadata, "generation")
        return bool(self.raw_status) and number(self.raw_status, "observedGeneration") >= wanted

    @property
    def is_over(self) -> bool:
        """Whether it has succeeded or failed."""
        return self.status.is_true(constants.SUCCEEDED) or self.status.is_true(constants.FAILED)

    def trained_until(self, now: datetime) -> datetime:
        """Until when its newest round trained; now if it still does."""
        completed = moment(self.status.completion_time)
        if completed is not None:
            return completed
        ready = self.status.condition(constants.READY)
        stopped = moment(ready.last_transition_time) if ready is not None and ready.status == "False" else None
        return min(stopped or now, now)
