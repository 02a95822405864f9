"""Who calls: one session for each pod that has called or is a member of the newest round.

Liveness lives here and in memory only. A session is alive until a moment that each of its calls moves on; a call that
is held open keeps it alive for as long as it is held. The identity of a caller is (pod UID, incarnation): another
incarnation from the same pod replaces the earlier one, whose late calls are refused from then on.
"""

from collections import OrderedDict
from dataclasses import dataclass

from elasticjob.rendezvous.coordinator.effects import Waiter
from elasticjob.rendezvous.orders import NodeFacts
from elasticjob.rendezvous.protocol import ErrorCode, Failure, ProtocolError
from elasticjob.rendezvous.state import Node

MAX_FENCED = 4096
"""How many dead pods a run remembers, so that their late calls get a final answer."""
MAX_RETIRED = 8
"""How many earlier incarnations of one pod are remembered."""


@dataclass(kw_only=True)
class Session:
    """One pod as a caller.

    Args:
        incarnation: The agent process that called last; None for a member of a restored round that has not called yet.
        alive_until: When the caller counts as lost unless it calls before.
        joining: It wants to be in the next round.
        waiter: Its join call that is held open.
        failure: The failure that it reported with its join.
        leaving: When it counts as gone, after it said that it leaves.
        left_round: The round that it named then; a sign of life from a newer one shows that the word was late.
    """

    uid: str
    index: int
    pod: str
    alive_until: float
    incarnation: str | None = None
    address: str = ""
    pid: int = 0
    joining: bool = False
    joined_at: float = 0.0
    waiter: Waiter | None = None
    failure: Failure | None = None
    leaving: float | None = None
    left_round: int = 0
    retired: tuple[str, ...] = ()

    @property
    def node(self) -> Node:
        """The node as the state machine knows it."""
        return Node(key=self.uid, address=self.address, order=self.index, pid=self.pid, name=self.pod)

    @property
    def label(self) -> str:
        """The node in messages."""
        return f"node {self.index} ({self.pod})"

    @property
    def lost_at(self) -> float:
        """When it counts as lost or gone, unless it calls before."""
        return self.alive_until if self.leaving is None else min(self.alive_until, self.leaving)

    def adopt(self, incarnation: str) -> bool:
        """Take over the incarnation that calls. True if it replaces another one."""
        replaces = self.incarnation is not None and self.incarnation != incarnation
        if self.incarnation is not None and replaces:
            self.retired = (*self.retired, self.incarnation)[-MAX_RETIRED:]
        self.incarnation = incarnation
        return replaces

    def touch(self, until: float) -> None:
        """It is alive at least until then."""
        self.alive_until = max(self.alive_until, until)

    def stop_joining(self) -> Waiter | None:
        """It is not to be in the next round (any more). Returns its call that is held open."""
        waiter, self.waiter = self.waiter, None
        self.joining, self.failure = False, None
        return waiter


class Fenced:
    """Pods that are dead for good, by UID; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, str] = OrderedDict()

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def add(self, uid: str, pod: str) -> None:
        self._pods[uid] = pod
        while len(self._pods) > MAX_FENCED:
            self._pods.popitem(last=False)

    def pod(self, uid: str) -> str:
        """Name of a dead pod, else empty."""
        return self._pods.get(uid, "")


def dead(pod: str) -> ProtocolError:
    """What a pod is told that can never come back."""
    return ProtocolError(ErrorCode.FENCED, f"pod {pod} is dead or replaced: its calls are refused for good")


def session_of(fact: NodeFacts, *, alive_until: float) -> Session:
    """A session for a pod that calls for the first time."""
    return Session(uid=fact.pod_uid, index=fact.index, pod=fact.pod, alive_until=alive_until)
