"""Reads the API server's audit log: who made which call, when, and with what outcome. Pure.

The log has one JSON object a line, written before the answer was sent. A line is cut off if it is being written just
now; whatever reads the log while the server runs leaves that one for the next time.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

WRITING = frozenset({"create", "update", "patch", "delete", "deletecollection"})
REVIEWS = frozenset({"selfsubjectaccessreviews", "tokenreviews", "subjectaccessreviews"})
"""Questions that the API takes in the form of creations. Nothing is stored."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call that was answered. Times are in seconds since the epoch."""

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    received: float
    answered: float

    @property
    def is_write(self) -> bool:
        """Whether it changed something, or would have."""
        return self.verb in WRITING and self.resource not in REVIEWS

    @property
    def succeeded(self) -> bool:
        """Whether it was carried out."""
        return 200 <= self.code < 300

    @property
    def kind(self) -> str:
        """Verb and resource, as in `update elasticjobs/status`."""
        return f"{self.verb} {self.resource}" + (f"/{self.subresource}" if self.subresource else "")


def read(lines: Iterable[str]) -> Iterator[Call]:
    """The answered calls of a log, in its order."""
    for line in lines:
        if not line.endswith("\n"):
            return
        entry = json.loads(line)
        if entry.get("stage") == "ResponseComplete" and "objectRef" in entry:
            yield _call(entry)


def _call(entry: dict[str, Any]) -> Call:
    target = entry["objectRef"]
    return Call(
        user=entry["user"]["username"],
        verb=entry["verb"],
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=int(entry.get("responseStatus", {}).get("code", 0)),
        received=_seconds(entry["requestReceivedTimestamp"]),
        answered=_seconds(entry["stageTimestamp"]),
    )


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def writes(calls: Iterable[Call], user: str) -> list[Call]:
    """The writes of one user, refused ones too: they cost the server as much."""
    return [call for call in calls if call.user == user and call.is_write]


def count_by_kind(calls: Iterable[Call]) -> Counter[str]:
    """How many calls there were of each kind."""
    return Counter(call.kind for call in calls)


def seconds_to_create(calls: Iterable[Call], *, job: str, resource: str, pods: int) -> float:
    """Seconds from the moment a job was received until its last pod was created.

    Raises:
        ValueError: Fewer pods were created, or none was asked for.
    """
    created = [call for call in calls if call.verb == "create" and not call.subresource and call.succeeded]
    begun = [call.received for call in created if call.resource == resource and call.name == job]
    made = sorted(call.answered for call in created if call.resource == "pods")
    if not begun or len(made) < pods:
        raise ValueError(f"{len(made)} of {pods} pods were created for {len(begun)} jobs of the name {job}")
    return made[pods - 1] - begun[0]


def most_in_a_second(calls: Iterable[Call]) -> int:
    """The most calls that were received within any one second."""
    moments = sorted(call.received for call in calls)
    most, first = 0, 0
    for last, moment in enumerate(moments):
        while moment - moments[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most
