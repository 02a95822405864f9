"""Records membership facts as RdzvEvents, off the event loop.

Whoever listens to events may be slow; the loop that answers workers is not to wait for them. The queue is bounded: what
does not fit is dropped and counted.
"""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from elasticjob.events import construct_and_record_rdzv_event
from elasticjob.rendezvous.coordinator import Record

log = logging.getLogger(__name__)

Sink = Callable[..., None]
"""Has the signature of `construct_and_record_rdzv_event`."""
CAPACITY = 20_000


class Recorder:
    """One thread that records.

    Args:
        dropped: Called for each event that does not fit.
    """

    def __init__(self, sink: Sink | None = None, *, dropped: Callable[[], object] = lambda: None) -> None:
        self._dropped = dropped
        self._sink: Sink = sink or construct_and_record_rdzv_event
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(CAPACITY)
        self._thread = threading.Thread(target=self._run, name="rendezvous-events", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout: float = 1.0) -> None:
        """Record what is queued, within the time-out in seconds, and end."""
        if self._thread.is_alive():
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                return
            self._thread.join(timeout)

    def record(self, run_id: str, fact: Record) -> None:
        """Queue one fact. Never waits."""
        event = {
            "run_id": run_id,
            "name": fact.name,
            "message": fact.message,
            "node_state": fact.node_state,
            "hostname": fact.pod or "operator",
            "pid": fact.pid,
            "local_id": fact.index,
            "rank": fact.rank,
        }
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._dropped()

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._sink(**event)
            except Exception:
                log.exception("An event could not be recorded")
