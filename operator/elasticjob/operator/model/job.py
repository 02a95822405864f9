"""An ElasticJob as it was read from the API server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticjob.operator.model.errors import ModelError
from elasticjob.operator.model.fields import text
from elasticjob.operator.model.reader import Reader
from elasticjob.operator.model.spec import ElasticJobSpec
from elasticjob.operator.model.status import ElasticJobStatus


@dataclass(frozen=True, kw_only=True)
class ElasticJob:
    """One object.

    Args:
        uid: Identity of the run.
        managed_by: The controller that is to run it, as `spec.managedBy` says; empty if unset.
        deletion: When its deletion was asked for (RFC 3339), or None.
        spec: What is wanted; None if it cannot be understood.
        spec_error: Why the spec cannot be understood, else empty.
        status: What was stored last, typed.
        stored_status: The same as it was read, to find out whether a new one differs.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    managed_by: str = ""
    deletion: str | None
    spec: ElasticJobSpec | None
    spec_error: str = ""
    status: ElasticJobStatus
    stored_status: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ElasticJob":
        """Read an object. A spec that cannot work is kept as `spec_error`, since the user must be told by status."""
        metadata = Reader(data, "").within("metadata")
        spec, error = None, ""
        try:
            spec = ElasticJobSpec.from_dict(Reader(data, "").mapping("spec"))
        except ModelError as failure:
            error = str(failure)
        stored = data.get("status")
        raw = data.get("spec")
        stored = stored if isinstance(stored, Mapping) else {}
        return cls(
            namespace=metadata.text("namespace"),
            name=metadata.text("name"),
            uid=metadata.text("uid"),
            generation=metadata.integer("generation", 0, most=2**63 - 1),
            resource_version=metadata.text("resourceVersion"),
            managed_by=text(raw, "managedBy") if isinstance(raw, Mapping) else "",
            deletion=metadata.text("deletionTimestamp") or None,
            spec=spec,
            spec_error=error,
            status=ElasticJobStatus.from_dict(stored),
            stored_status=stored,
        )
