"""What the coordinator wants done: plain data, carried out by the host in the given order."""

from dataclasses import dataclass
from typing import TypeAlias

from elasticjob.events.api import NodeState
from elasticjob.rendezvous.protocol import Endpoint, HeartbeatAnswer, JoinFormed, JoinWaiting, ProtocolError
from elasticjob.rendezvous.state import State

Waiter: TypeAlias = int
"""Names one call that is held open. Given by the host, never reused."""

WaitResult: TypeAlias = JoinFormed | JoinWaiting | Endpoint | HeartbeatAnswer | ProtocolError


@dataclass(frozen=True, kw_only=True)
class Persist:
    """Store this state, then call `persisted` or, as often as it fails for now, `persist_failed`.

    At most one is under way. It must be tried until its fate is known: nothing is decided in the meantime.
    """

    state: State


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer a call that is held open."""

    waiter: Waiter
    result: WaitResult


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record one fact of the membership as an RdzvEvent. Without `index` it is about the run as a whole.

    Args:
        detector: Who noticed that a node left or was lost; else empty.
        silence: For how many seconds it had not called then.
    """

    name: str
    message: str
    node_state: NodeState
    pod: str = ""
    pid: int = 0
    index: int | None = None
    rank: int | None = None
    detector: str = ""
    silence: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Changed:
    """The view of the run is another one."""


@dataclass(frozen=True, kw_only=True)
class Verify:
    """A caller knows a newer round than we do: read the stored state, perhaps we do not lead any more."""


Effect: TypeAlias = Persist | Answer | Record | Changed | Verify
