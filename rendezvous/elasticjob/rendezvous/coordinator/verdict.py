"""Whether a node that is in a round, or wants to be, still counts.

Two detectors that do not depend on each other: what the operator sees of the pod (at once), and the node's own calls
(after its keep-alives have stopped). Each verdict names the one that fired.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from elasticjob.rendezvous.coordinator.sessions import Session
from elasticjob.rendezvous.orders import NodeFacts, NodePhase


class Detector(str, Enum):
    """Who noticed."""

    POD_WATCH = "pod watch"
    KEEP_ALIVE = "keep-alive"
    LEFT = "left"
    ORDER = "order"


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A node does not count any more.

    Args:
        final: The pod can never come back; its calls are refused.
        planned: Nobody is to blame: the operator ordered it, or the node drains.
    """

    detector: Detector
    reason: str
    final: bool = False
    planned: bool = False


def judge(fact: NodeFacts | None, session: Session | None, *, expected: Collection[int], now: float) -> Loss | None:
    """The verdict on one node, None while it counts."""
    loss = _by_pod(fact, expected)
    return _by_calls(session, now) if loss is None else loss


def _by_pod(fact: NodeFacts | None, expected: Collection[int]) -> Loss | None:
    if fact is None:
        return Loss(detector=Detector.POD_WATCH, reason="its pod is gone", final=True)
    detail = f" ({fact.reason})" if fact.reason else ""
    if fact.phase is NodePhase.FAILED:
        return Loss(detector=Detector.POD_WATCH, reason=f"its pod failed{detail}", final=True)
    if fact.phase is NodePhase.SUCCEEDED:
        return Loss(detector=Detector.POD_WATCH, reason="its pod has succeeded", final=True, planned=True)
    if fact.phase is NodePhase.DRAINING:
        return Loss(detector=Detector.POD_WATCH, reason=f"its pod drains{detail}", planned=True)
    if fact.index not in expected:
        return Loss(detector=Detector.ORDER, reason="it is not wanted any more", planned=True)
    return None


def _by_calls(session: Session | None, now: float) -> Loss | None:
    if session is None:
        return Loss(detector=Detector.KEEP_ALIVE, reason="it never called")
    if session.leaving is not None and session.leaving <= now:
        return Loss(detector=Detector.LEFT, reason="it left")
    if session.alive_until <= now:
        return Loss(detector=Detector.KEEP_ALIVE, reason="its keep-alives stopped")
    return None
