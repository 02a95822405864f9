"""What an event is, and its JSON form.

Two kinds: `Event` for anything that an agent or a worker does, `RdzvEvent` for what happens to a rendezvous. Names,
fields, order and defaults are those of `torch.distributed.elastic.events.api`, so that a reader of one reads the other.

`serialize` never raises and writes one line of strict JSON (see `encoding`). `deserialize` is lenient towards writers
of other versions (unknown fields are ignored, optional ones may be missing) and strict towards everything else: it
answers bad input with a `ValueError` or `TypeError` that names the field.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias, TypeVar, Union

from elasticjob.events.encoding import to_json

__all__ = ["Event", "EventMetadataValue", "EventSource", "NodeState", "RdzvEvent"]

EventMetadataValue: TypeAlias = str | int | float | bool | None
"""What the metadata of an event is meant to hold."""


class EventSource(str, Enum):
    """Who produced an event."""

    AGENT = "AGENT"
    WORKER = "WORKER"


class NodeState(str, Enum):
    """The states of a node of a rendezvous."""

    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass
class Event:
    """Something meaningful that happened while a job ran.

    Args:
        name: Name of the event.
        source: Who produced it.
        timestamp: When it happened, in milliseconds since the epoch; 0 if not known.
        metadata: What else is to be known about it.
    """

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, EventMetadataValue] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: Union[str, "Event"]) -> "Event":
        """Build an event from its JSON form. An event is returned as it is.

        Raises:
            TypeError: `data` is neither text nor an event.
            ValueError: `data` is not the JSON form of an event.
        """
        if isinstance(data, Event):
            return data
        fields = _decode(data, Event, _EVENT_FIELDS)
        fields["source"] = _member(EventSource, "source", fields["source"])
        return Event(**fields)

    def serialize(self) -> str:
        """Encode as one line of JSON. Never raises."""
        return _encode(self)


@dataclass
class RdzvEvent:
    """Something that happened to a rendezvous, as seen by one node.

    Args:
        name: Name of the event, for instance what was being done.
        run_id: Id of the run.
        message: What happened, for people.
        hostname: Host name of the node.
        pid: Process id of the node's agent.
        node_state: State of the node.
        master_endpoint: Where the store of rank 0 listens, if known.
        rank: Rank of the node, if known.
        local_id: Which node of its process it is, if known.
        error_trace: Stack trace, if the event tells of an error.
    """

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str = ""
    rank: int | None = None
    local_id: int | None = None
    error_trace: str = ""

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: Union[str, "RdzvEvent"]) -> "RdzvEvent":
        """Build an event from its JSON form. An event is returned as it is.

        Raises:
            TypeError: `data` is neither text nor a rendezvous event.
            ValueError: `data` is not the JSON form of a rendezvous event.
        """
        if isinstance(data, RdzvEvent):
            return data
        fields = _decode(data, RdzvEvent, _RDZV_EVENT_FIELDS)
        fields["node_state"] = _member(NodeState, "node_state", fields["node_state"])
        return RdzvEvent(**fields)

    def serialize(self) -> str:
        """Encode as one line of JSON. Never raises."""
        return _encode(self)


_EVENT_FIELDS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "source": (str,),
    # Callers often pass `time.time() * 1000`.
    "timestamp": (int, float),
    "metadata": (dict,),
}

_RDZV_EVENT_FIELDS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "run_id": (str,),
    "message": (str,),
    "hostname": (str,),
    "pid": (int,),
    "node_state": (str,),
    "master_endpoint": (str,),
    "rank": (int, type(None)),
    "local_id": (int, type(None)),
    "error_trace": (str,),
}

_EnumT = TypeVar("_EnumT", bound=Enum)


def _encode(event: Event | RdzvEvent) -> str:
    return to_json({f.name: getattr(event, f.name) for f in dataclasses.fields(event)})


def _decode(data: object, cls: type[Event] | type[RdzvEvent], kinds: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """Read the known fields of `cls` from JSON text and check that each is there and of its kind."""
    if not isinstance(data, str):
        raise TypeError(f"{cls.__name__}.deserialize needs text or a {cls.__name__}, not {type(data).__name__}.")
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"This is not the JSON form of a {cls.__name__}: {error}.") from error
    if not isinstance(values, dict):
        raise ValueError(  # noqa: TRY004 - the argument is of the right type, its content is not
            f"The JSON form of a {cls.__name__} is an object, not {type(values).__name__}."
        )
    missing = [f.name for f in dataclasses.fields(cls) if _is_required(f) and f.name not in values]
    if missing:
        raise ValueError(f"The {cls.__name__} lacks the field(s) {', '.join(missing)}.")
    fields = {name: values[name] for name in kinds if name in values}
    for name, value in fields.items():
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise ValueError(f"The field {name} of the {cls.__name__} cannot be {value!r:.80}.")  # noqa: TRY004
    return fields


def _is_required(candidate: "dataclasses.Field[Any]") -> bool:
    return candidate.default is dataclasses.MISSING and candidate.default_factory is dataclasses.MISSING


def _member(kind: type[_EnumT], name: str, value: str) -> _EnumT:
    try:
        return kind[value]
    except KeyError:
        known = ", ".join(kind.__members__)
        raise ValueError(f"The field {name} cannot be {value!r:.80}; known are {known}.") from None
