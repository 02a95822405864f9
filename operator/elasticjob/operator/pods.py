"""Builds the objects of a job: worker pods, the headless Service, the metadata of the state ConfigMap. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.operator.model import ElasticJob
from elasticjob.rendezvous.endpoint import ServerEndpoint


@dataclass(frozen=True, kw_only=True)
class OperatorFacts:
    """What worker pods must know of the operator.

    Args:
        image: Image of the init container, the operator's own.
        endpoint: Where worker pods reach the rendezvous server.
        ca_bundle: PEM certificates to check the server against, or None for plain HTTP.
        pull_policy: imagePullPolicy of the init container; empty for the cluster's default.
    """

    image: str
    endpoint: ServerEndpoint
    ca_bundle: str | None = None
    pull_policy: str = ""


def build_pod(job: ElasticJob, facts: OperatorFacts, *, index: int, attempt: int) -> Mapping[str, Any]:
    """The worker pod of one node."""
    raise NotImplementedError


def build_service(job: ElasticJob) -> Mapping[str, Any]:
    """The headless Service that gives worker pods their names, also before they are ready."""
    raise NotImplementedError


def state_config_map_metadata(job: ElasticJob) -> Mapping[str, Any]:
    """Metadata of the ConfigMap that the rendezvous keeps its state in: owned by the job, so it goes with it."""
    raise NotImplementedError
