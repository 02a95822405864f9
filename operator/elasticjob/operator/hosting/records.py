"""Records membership facts as RdzvEvents, off the event loop.

Whoever listens to events may be slow; the loop that answers workers is not to wait for them. The queue is bounded: what
does not fit is dropped and counted. Facts are gathered for a moment: to wake up a thread for each of a thousand joins
would cost the loop as much as the joins do.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable

from elasticjob.events import construct_and_record_rdzv_event
from elasticjob.rendezvous.coordinator import Record

log = logging.getLogger(__name__)

Sink = Callable[..., None]
"""Has the signature of `construct_and_record_rdzv_event`."""
CAPACITY = 20_000
GATHER = 0.05
"""Seconds for which facts are gathered."""


class Recorder:
    """One thread that records.

    Args:
        dropped: Called for each event that does not fit.
    """

    def __init__(self, sink: Sink | None = None, *, dropped: Callable[[], object] = lambda: None) -> None:
        self._dropped = dropped
        self._sink: Sink = sink or construct_and_record_rdzv_event
        self._queue: deque[tuple[str, Record]] = deque()
        self._has_facts = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rendezvous-events", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout: float = 1.0) -> None:
        """Record what is queued, within the time-out in seconds, and end."""
        if self._thread.is_alive():
            self._ends.set()
            self._has_facts.set()
            self._thread.join(timeout)

    def record(self, run_id: str, fact: Record) -> None:
        """Queue one fact. Never waits."""
        if len(self._queue) >= CAPACITY:
            self._dropped()
            return
        self._queue.append((run_id, fact))
        if not self._has_facts.is_set():
            self._has_facts.set()

    def _run(self) -> None:
        while not self._ends.is_set():
            self._has_facts.wait()
            self._ends.wait(GATHER)
            self._has_facts.clear()  # first, so that no fact is left behind
            while self._queue:
                self._tell(*self._queue.popleft())

    def _tell(self, run_id: str, fact: Record) -> None:
        try:
            self._sink(
                run_id=run_id,
                name=fact.name,
                message=fact.message,
                node_state=fact.node_state,
                hostname=fact.pod or "operator",
                pid=fact.pid,
                local_id=fact.index,
                rank=fact.rank,
            )
        except Exception:
            log.exception("An event could not be recorded")
