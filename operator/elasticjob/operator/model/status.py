"""What was observed and decided: `status` of an ElasticJob as frozen data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ElasticJobStatus:
    """The stored state of a job."""

    phase: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ElasticJobStatus":
        """Read a status. It was written by this program: what cannot be understood counts as absent."""
        phase = data.get("phase")
        return cls(phase=phase if isinstance(phase, str) else "")
