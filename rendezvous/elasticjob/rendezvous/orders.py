"""What the operator and the hosted rendezvous tell each other about one run.

Both directions are level-triggered: each message is the whole truth as its sender knows it, so a lost or repeated one
does no harm. The operator sends `RunOrders`, the coordinator answers with `RunView`. Plain frozen data, no I/O.

A *run* is one ElasticJob object; its id is the object's UID, so that a job that is created anew under an old name is
another run. A *node* of a run is identified by the UID of its pod; its index is stable over replacements.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class NodePhase(str, Enum):
    """What the operator knows about the pod of a node."""

    ALIVE = "Alive"
    """The pod exists, is not being deleted and its worker container has not ended."""
    DRAINING = "Draining"
    """The pod is being deleted or is to leave: no new round may count on it, but its agent may still call."""
    SUCCEEDED = "Succeeded"
    """The worker container ended with exit code 0."""
    FAILED = "Failed"
    """The worker container ended otherwise, or the pod was evicted."""


class CloseReason(str, Enum):
    """Why the operator ends a run."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    DELETED = "Deleted"


class RunState(str, Enum):
    """What a run is doing, as shown to users."""

    WAITING = "Waiting"
    """The first round is open and too few nodes have joined."""
    LAST_CALL = "LastCall"
    """Enough nodes have joined; the round waits a little for the missing ones."""
    FORMED = "Formed"
    """A round is complete and training runs."""
    REFORMING = "Reforming"
    """The formed round is being replaced: a member was lost, a node waits, or the operator ordered it."""
    CLOSED = "Closed"


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """One pod of the run. `reason` says why it drains or failed, in the words of the API (e.g. `OOMKilled`)."""

    pod_uid: str
    pod: str
    index: int
    phase: NodePhase
    reason: str = ""


def is_served(fact: NodeFacts | None) -> bool:
    """Whether calls of the pod are served."""
    return fact is not None and fact.phase in (NodePhase.ALIVE, NodePhase.DRAINING)


@dataclass(frozen=True, kw_only=True)
class RunOrders:
    """Everything that the operator wants of one run.

    Args:
        expected: Indexes of the nodes that should be in the next round: the wanted size without nodes that have
            succeeded or are to leave. A round completes at once when all of them have joined.
        unable: Indexes of nodes that cannot come for now, e.g. since no machine has room. A group with members of the
            last round goes on without those; one that begins anew waits for them as for all others.
        step: A round has a multiple of so many members; further nodes that have joined wait as spares.
        nodes: Every pod of the run that exists, by pod UID. A pod that is missing here is gone for good.
        max_worker_failures: How often workers may fail and be restarted in place; None for no limit.
        wait_for_all: Seconds for which a group that begins anew, without any member of the last round, waits for all
            expected nodes once enough have joined. A last call that is longer goes on for its own time.
        close: Set to end the run; never taken back.
        backend: Name of the backend that keeps the run's state, and its options. Never changed for a run.
        The time-outs are in seconds and have the meaning and the defaults of torch elastic.
    """

    run_id: str
    namespace: str
    job: str
    min_nodes: int
    max_nodes: int
    expected: frozenset[int]
    nodes: Mapping[str, NodeFacts]
    unable: frozenset[int] = frozenset()
    step: int = 1
    max_worker_failures: int | None = None
    join_timeout: float = 600.0
    last_call_timeout: float = 30.0
    wait_for_all: float = 0.0
    close_timeout: float = 30.0
    keep_alive_interval: float = 5.0
    keep_alive_max_attempt: int = 3
    close: CloseReason | None = None
    close_message: str = ""
    backend: str = "kubernetes"
    backend_conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One node as the rendezvous sees it. `rank` is None while it only waits.

    `silent` says that it has missed a keep-alive: it has not called for two intervals, and is not given up yet.
    """

    index: int
    pod_uid: str
    pod: str
    address: str
    rank: int | None
    joined: bool
    silent: bool = False


@dataclass(frozen=True, kw_only=True)
class RunView:
    """What the rendezvous of one run looks like now.

    Args:
        round: Number of the newest formed round, from 1; 0 before the first.
        participants: Members of the newest formed round, by rank.
        waiting: Nodes that have joined the open round or wait for the next one, by index.
        deadline_seconds: Seconds until the open round completes (last call) or fails (join), else None.
        begins_anew: Whether the group in the open round has no member of the last one, so that nobody is kept from
            training by waiting.
        worker_failures: How often workers failed in place since the run began. One more than may fail has ended it.
        cause: Why the newest round was formed or is to be replaced, for people.
        last_round_seconds: How long the newest round took to form.
        failed: Why the run cannot go on (join time-out, budget spent), else empty. The operator decides what follows.
        held: True while the state was just taken over and nodes are given time to report.
        misdirected: Pods that called for another run and not for this one since, by UID: the run that they named.
        taken_over: False while the stored state has not been read. Then only `failed` and `details` tell anything.
    """

    run_id: str
    epoch: int
    round: int
    state: RunState
    participants: tuple[NodeView, ...] = ()
    waiting: tuple[NodeView, ...] = ()
    deadline_seconds: float | None = None
    begins_anew: bool = False
    worker_failures: int = 0
    cause: str = ""
    last_round_seconds: float | None = None
    failed: str = ""
    held: bool = False
    taken_over: bool = True
    misdirected: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)
