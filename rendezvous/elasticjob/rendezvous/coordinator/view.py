"""What the rendezvous of a run looks like from outside."""

from elasticjob.rendezvous.coordinator.membership import Membership
from elasticjob.rendezvous.coordinator.sessions import Session
from elasticjob.rendezvous.orders import NodeView, RunState, RunView
from elasticjob.rendezvous.state import Node


def view_of(members: Membership, *, store_error: str, now: float) -> RunView:
    """Describe the run as it is at `now`."""
    rounds = members.rounds
    formed = rounds.formed
    deadline = members.join_deadline if members.last_call_deadline is None else members.last_call_deadline
    return RunView(
        run_id=members.orders.run_id,
        epoch=members.epoch,
        round=rounds.newest,
        state=_state(members),
        participants=()
        if formed is None
        else tuple(_member(node, rank, members) for rank, node in enumerate(formed.nodes)),
        waiting=_waiting(members),
        deadline_seconds=None if deadline is None else max(0.0, deadline - now),
        begins_anew=rounds.begins_anew,
        worker_failures=members.failures,
        cause=rounds.cause if rounds.incident is None else rounds.incident.cause,
        last_round_seconds=rounds.seconds,
        failed=members.failed,
        held=bool(members.unreported) and now < members.held_until,
        details={"storeError": store_error} if store_error else {},
    )


def _state(members: Membership) -> RunState:
    state = members.rounds.state
    if state.closed is not None:
        return RunState.CLOSED
    if state.complete:
        return RunState.FORMED
    if members.rounds.in_last_call:
        return RunState.LAST_CALL
    # Also once nobody of the formed round is outstanding any more: it is replaced until the next one has formed.
    return RunState.WAITING if members.rounds.formed is None else RunState.REFORMING


def _member(node: Node, rank: int, members: Membership) -> NodeView:
    state = members.rounds.state
    return NodeView(
        index=node.order,
        pod_uid=node.key,
        pod=node.name,
        address=node.address,
        rank=rank,
        joined=state.complete or node.key in state.participants,
        silent=node.key in members.silent,
    )


def _waiting(members: Membership) -> tuple[NodeView, ...]:
    waiting = sorted((s for s in members.sessions.values() if s.joining), key=lambda session: session.index)
    return tuple(_candidate(session, silent=session.uid in members.silent) for session in waiting)


def _candidate(session: Session, *, silent: bool) -> NodeView:
    return NodeView(
        index=session.index,
        pod_uid=session.uid,
        pod=session.pod,
        address=session.address,
        rank=None,
        joined=True,
        silent=silent,
    )
