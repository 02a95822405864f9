"""What is told of a run, in words: records of its facts, and refusals for its callers.

Pure: each function words one fact. When it is told, and to whom, is decided by the membership.
"""

from collections.abc import Mapping, Sequence

from elasticjob.events.api import NodeState
from elasticjob.rendezvous.coordinator.effects import Record
from elasticjob.rendezvous.coordinator.rounds import Formed, Rounds
from elasticjob.rendezvous.coordinator.sessions import Session
from elasticjob.rendezvous.coordinator.verdict import Detector, Loss
from elasticjob.rendezvous.orders import CloseReason
from elasticjob.rendezvous.protocol import Closed, ErrorCode, ProtocolError
from elasticjob.rendezvous.wording import counted

NAMED_LOSSES = 3
"""So many lost nodes are named in the cause of a new round; the others are counted."""


def run_is_closed(closed: Closed) -> ProtocolError:
    """What callers are told of a run that is over."""
    return ProtocolError(ErrorCode.CLOSED, f"the run is closed: {closed.reason}", closed=closed)


def round_is_replaced(round: int, cause: str) -> ProtocolError:
    """What members are told that ask for something of a round that does not stand any more."""
    return ProtocolError(ErrorCode.STALE_ROUND, round_reforming(round, cause).message)


def node_record(
    name: str,
    message: str,
    node_state: NodeState,
    session: Session,
    *,
    rank: int | None = None,
    detector: str = "",
    silence: float = 0.0,
) -> Record:
    """One fact about a node."""
    return Record(
        name=name,
        message=message,
        node_state=node_state,
        pod=session.pod,
        pid=session.pid,
        index=session.index,
        rank=rank,
        detector=detector,
        silence=silence,
    )


def node_succeeded(session: Session, detector: Detector) -> Record:
    """A member has done its work."""
    message = f"{session.label} has succeeded ({detector.value})"
    return node_record("NodeLeft", message, NodeState.SUCCEEDED, session)


def node_lost(session: Session, loss: Loss, *, silence: float) -> Record:
    """A node of the round does not count any more."""
    gently = loss.planned or loss.detector is Detector.LEFT
    name, state = ("NodeLeft", NodeState.RUNNING) if gently else ("NodeLost", NodeState.FAILED)
    message = f"{session.label}: {loss.reason} ({loss.detector.value})"
    return node_record(name, message, state, session, detector=loss.detector.value, silence=silence)


def node_ranked(session: Session, formed: Formed) -> Record:
    """A member has its place in the round that has formed."""
    rank = formed.ranks[session.uid]
    message = f"{session.label} is rank {rank} of round {formed.round}"
    return node_record("NodeRanked", message, NodeState.RUNNING, session, rank=rank)


def round_formed(formed: Formed, cause: str) -> Record:
    """A round has formed, and is stored."""
    message = f"round {formed.round} formed with {counted(len(formed.nodes), 'node')}: {cause}"
    return Record(name="RoundFormed", message=message, node_state=NodeState.RUNNING)


def round_reforming(round: int, cause: str) -> Record:
    """A round does not stand any more."""
    message = f"round {round} is being replaced: {cause}"
    return Record(name="RoundReforming", message=message, node_state=NodeState.RUNNING)


def last_call(rounds: Rounds) -> Record:
    """Enough nodes are in; the others have the last call to come."""
    return Record(name="LastCall", message=progress(rounds), node_state=NodeState.INIT)


def join_timed_out(why: str) -> Record:
    """The run cannot go on for lack of nodes."""
    return Record(name="JoinTimedOut", message=why, node_state=NodeState.FAILED)


def run_closed(closed: Closed) -> Record:
    """The end of the run is stored."""
    message = f"the run is closed: {closed.reason}" + (f": {closed.message}" if closed.message else "")
    good = closed.reason != CloseReason.FAILED.value
    return Record(name="RunClosed", message=message, node_state=NodeState.SUCCEEDED if good else NodeState.FAILED)


def progress(rounds: Rounds) -> str:
    """How many nodes are in the open round."""
    inside, least = len(rounds.state.participants), rounds.limits.min_nodes
    return f"{inside} of {counted(len(rounds.wanted), 'wanted node')} joined (min {least})"


def cause_of_loss(members: Sequence[str], losses: Mapping[str, Loss], sessions: Mapping[str, Session]) -> str:
    """Which members were lost from a round, and why."""

    def told(uid: str) -> str:
        session = sessions.get(uid)
        label = f"pod {uid}" if session is None else session.label
        return f"{label}: {losses[uid].reason} ({losses[uid].detector.value})"

    more = len(members) - NAMED_LOSSES
    return "; ".join(told(uid) for uid in members[:NAMED_LOSSES]) + (f" and {more} more" if more > 0 else "")
