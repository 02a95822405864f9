"""What the steps of a node mean, told as rendezvous events.

The points at which events are recorded, and their states, are those of torch elastic's dynamic rendezvous. One thing is
different: what a node did to the state is told once it is stored, and not while it may still lose the race.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from elasticjob.events import NodeState
from elasticjob.rendezvous.peer import Intent, Step
from elasticjob.rendezvous.state import Node


@dataclass(frozen=True)
class Telling:
    """An event to be recorded: what was done, for programs and for people."""

    name: str
    message: str
    node_state: NodeState = NodeState.RUNNING


def label(node: Node) -> str:
    """A node for people, as torch elastic shows it."""
    return f"{node.address}_{node.pid}_{node.local_id}"


def tell(step: Step, me: Node, run_id: str) -> Iterator[Telling]:
    """The events of a step, in order."""
    if step.after is step.before:
        return
    if not step.written:
        yield Telling("sync", f"The node '{label(me)}' has a stale state and will sync again.")
        return
    yield Telling("sync", f"The node '{label(me)}' has written the state of the rendezvous '{run_id}'.")
    yield from _membership(step, me, run_id)
    before, after = step.before, step.after
    if after.complete and not before.complete:
        yield Telling(
            "mark_rendezvous_complete",
            f"The node '{label(me)}' marked round {after.round} of the rendezvous '{run_id}' as complete "
            f"with {len(after.participants)} node(s).",
            NodeState.SUCCEEDED,
        )
    if after.closed is not None and before.closed is None:
        yield Telling(
            "mark_rendezvous_closed",
            f"The node '{label(me)}' marked the rendezvous '{run_id}' as closed.",
            NodeState.SUCCEEDED,
        )
    if step.intent is Intent.BEAT:
        yield Telling("keep_alive", f"The node '{label(me)}' updated its heartbeat for the rendezvous '{run_id}'.")


def _membership(step: Step, me: Node, run_id: str) -> Iterator[Telling]:
    before, after, who = step.before, step.after, label(me)
    lost = [label(node) for key, node in before.nodes.items() if key not in after.nodes and key != me.key]
    if lost:
        yield Telling(
            "remove_lost_nodes",
            f"The node(s) {', '.join(lost)} have been removed from the rendezvous '{run_id}' since they had no "
            "heartbeat or were replaced.",
        )
    if me.key in after.participants and (me.key not in before.participants or after.round > before.round):
        yield Telling(
            "add_to_participants",
            f"The node '{who}' added itself to the participants of round {after.round} of the rendezvous '{run_id}'.",
        )
    if me.key in after.spares and me.key not in before.spares:
        yield Telling(
            "add_to_redundancy_list",
            f"The node '{who}' added itself to the spares of the rendezvous '{run_id}': its {len(after.participants)} "
            "places are taken.",
        )
    if me.key in before.nodes and me.key not in after.nodes:
        yield Telling("remove_from_participants", f"The node '{who}' removed itself from the rendezvous '{run_id}'.")
