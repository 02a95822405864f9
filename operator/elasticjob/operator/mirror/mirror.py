"""Shows rendezvous events to people: as Kubernetes Events and as the last event of each node.

A `logging.Handler` for the destination `dynamic_rendezvous` of `elasticjob.events`. It is a selector, not a pipe: only
facts about membership are shown, by the fixed names in `SHOWN`; keep-alives and whatever else is logged there are not.
Facts about single nodes are gathered for a moment, so that 500 nodes that join at once are one Event with a count.

Invariants: `emit` never raises, never waits and never talks to the cluster; memory is bounded by the registered runs
and their pods; facts of one run keep their order.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticjob.events import NodeState, RdzvEvent, register_logging_handler
from elasticjob.operator.observed import NodeEvent
from elasticjob.operator.ports import Clock, ObjectReference, Occurrence

DESTINATION = "dynamic_rendezvous"
WINDOW = 2.0
"""Seconds for which facts about single nodes are gathered."""
_NAMES_SHOWN = 3
_PENDING_LIMIT = 1000


@dataclass(frozen=True, kw_only=True)
class Shown:
    """How one kind of rendezvous event is shown.

    Args:
        action: The verb of the Event.
        plural: Reason when several are shown as one; None for facts about the whole run, which are shown at once.
        did: What the nodes did, for the note of several.
    """

    action: str
    warning: bool = False
    plural: str | None = None
    did: str = ""


SHOWN: Mapping[str, Shown] = {
    "NodeJoined": Shown(action="Join", plural="NodesJoined", did="joined"),
    "NodeLeft": Shown(action="Leave", plural="NodesLeft", did="left"),
    "NodeLost": Shown(action="Expire", plural="NodesLost", did="were lost", warning=True),
    "WorkerFailed": Shown(action="Fail", plural="WorkersFailed", did="had a failing worker", warning=True),
    "StaleCallRefused": Shown(action="Refuse", plural="StaleCallsRefused", did="called with an old round"),
    "RoundFormed": Shown(action="Form"),
    "RoundReforming": Shown(action="Reform"),
    "LastCall": Shown(action="Wait"),
    "JoinTimedOut": Shown(action="Wait", warning=True),
    "RunClosed": Shown(action="Close"),
}


REMEMBERED = frozenset({"NodeRanked"})
"""Facts that are the state of a node and no news: its rank is told by the Event of the round."""


@dataclass(kw_only=True)
class _Window:
    """Facts of one kind about single nodes of one run."""

    opened: float
    first: RdzvEvent
    count: int = 0
    pods: list[str] = field(default_factory=list)

    def add(self, event: RdzvEvent) -> None:
        self.count += 1
        if len(self.pods) < _NAMES_SHOWN and event.hostname not in self.pods:
            self.pods.append(event.hostname)


@dataclass(kw_only=True)
class _Run:
    """What is known of one run."""

    job: ObjectReference
    nodes: dict[str, NodeEvent] = field(default_factory=dict)
    windows: dict[str, _Window] = field(default_factory=dict)


class EventMirror(logging.Handler):
    """Gathers rendezvous events; `drain` hands out what is to be shown. Thread-safe."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(level=logging.INFO)
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._pending: list[Occurrence] = []
        self._guard = threading.Lock()
        self._previous: logging.Handler | None = None

    def install(self) -> None:
        """Receive the events of this process from now on."""
        self._previous = register_logging_handler(DESTINATION, self)

    def uninstall(self) -> None:
        """Give the destination back to whoever had it."""
        register_logging_handler(DESTINATION, self._previous)

    def follow(self, job: ObjectReference, *, pods: Iterable[str]) -> None:
        """Show the events of this job's run; remember the last event of these pods only."""
        kept = set(pods)
        with self._guard:
            run = self._runs.setdefault(job.uid, _Run(job=job))
            for pod in run.nodes.keys() - kept:
                del run.nodes[pod]

    def forget(self, run_id: str) -> None:
        """Show nothing of this run any more."""
        with self._guard:
            self._runs.pop(run_id, None)

    def last_events(self, run_id: str) -> Mapping[str, NodeEvent]:
        """The last event of each node of a run, by pod name."""
        with self._guard:
            run = self._runs.get(run_id)
            return dict(run.nodes) if run else {}

    def emit(self, record: logging.LogRecord) -> None:
        """Take one rendezvous event. What is not one, or of no registered run, is ignored."""
        try:
            event = RdzvEvent.deserialize(record.getMessage())
        except (ValueError, TypeError):
            return
        # The recorder puts the file of its caller before the name.
        reason = event.name.rpartition(":")[2]
        if reason in SHOWN or reason in REMEMBERED:
            with self._guard:
                self._take(event, reason)

    def drain(self, now: float) -> list[Occurrence]:
        """What is to be shown by now, in order."""
        with self._guard:
            for run in self._runs.values():
                if run.windows:
                    self._close_windows(run, opened_before=now - WINDOW)
            pending, self._pending = self._pending, []
            return pending

    def _take(self, event: RdzvEvent, reason: str) -> None:
        run = self._runs.get(event.run_id)
        if run is None:
            return
        # A refused call says nothing about the node that now bears the name.
        if event.hostname and reason != "StaleCallRefused":
            run.nodes[event.hostname] = _node_event(event, reason)
        shown = SHOWN.get(reason)
        if shown is None:
            return
        if shown.plural is None:
            self._close_windows(run, opened_before=float("inf"))
            self._show(run, event, shown, note=event.message, reason=reason)
            return
        window = run.windows.setdefault(reason, _Window(opened=self._clock.now(), first=event))
        window.add(event)

    def _close_windows(self, run: _Run, *, opened_before: float) -> None:
        for name in [name for name, window in run.windows.items() if window.opened <= opened_before]:
            window = run.windows.pop(name)
            shown = SHOWN[name]
            if window.count == 1:
                self._show(run, window.first, shown, note=window.first.message, reason=name)
            else:
                self._show(run, None, shown, note=_together(window, shown), reason=shown.plural or name)

    def _show(self, run: _Run, event: RdzvEvent | None, shown: Shown, *, note: str, reason: str) -> None:
        pod = event.hostname if event and shown.plural else ""
        related = ObjectReference(api_version="v1", kind="Pod", namespace=run.job.namespace, name=pod, uid="")
        closed_badly = event is not None and event.node_state is NodeState.FAILED and reason == "RunClosed"
        self._pending.append(
            Occurrence(
                regarding=run.job,
                reason=reason,
                action=shown.action,
                note=note,
                warning=shown.warning or closed_badly,
                related=related if pod else None,
            )
        )
        del self._pending[:-_PENDING_LIMIT]


def _node_event(event: RdzvEvent, reason: str) -> NodeEvent:
    return NodeEvent(
        pod=event.hostname, reason=reason, message=event.message, state=event.node_state.value, rank=event.rank
    )


def _together(window: _Window, shown: Shown) -> str:
    names = ", ".join(window.pods)
    more = window.count - len(window.pods)
    return f"{window.count} nodes {shown.did}: {names}" + (f" and {more} more" if more > 0 else "")
