"""Carries events to their sink without letting the sink harm whoever recorded them.

Each destination has one daemon thread, which alone calls the sink. The recording thread hands its event over and, as
long as the sink keeps up, waits for it to be written: to the caller a good sink behaves as if it had been called
directly. Once a sink has kept somebody waiting for `PATIENCE_SECONDS`, nobody waits for it any more until it has caught
up. So a sink that blocks costs its callers one short delay, and one that raises costs them nothing.

Events of one thread keep their order. The queue is bounded; what does not fit is dropped, counted and told in a
warning.
"""

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PATIENCE_SECONDS = 0.05
CAPACITY = 10_000
EXIT_SECONDS = 1.0
"""How long a process that ends waits for sinks that lag behind."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Parcel:
    write: Callable[[str], object]
    text: str
    done: threading.Event = field(default_factory=threading.Event)


class Carrier:
    """The way to one destination."""

    def __init__(self, destination: str, *, patience: float = PATIENCE_SECONDS, capacity: int = CAPACITY) -> None:
        self._destination = destination
        self._patience = patience
        self._parcels: queue.Queue[_Parcel] = queue.Queue(capacity)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._lags = False
        self._dropped = 0
        self._sink_failed = False

    def carry(self, write: Callable[[str], object], text: str) -> None:
        """Have `write(text)` called on the thread of this destination. Never raises."""
        parcel = _Parcel(write, text)
        if not self._has_thread():
            self._hand_over(parcel)
            return
        try:
            self._parcels.put_nowait(parcel)
        except queue.Full:
            self._drop()
            return
        if self._lags or threading.current_thread() is self._thread:
            return
        if not parcel.done.wait(self._patience):
            self._note_lag()

    def flush(self, deadline: float) -> None:
        """Wait until everything has been written, or until `deadline` on the monotonic clock."""
        last = _Parcel(str, "")
        try:
            self._parcels.put(last, timeout=max(0.0, deadline - time.monotonic()))
        except queue.Full:
            return
        last.done.wait(max(0.0, deadline - time.monotonic()))

    def is_idle(self) -> bool:
        return not self._lags and self._parcels.empty()

    def _has_thread(self) -> bool:
        if self._thread is not None:
            return True
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=f"events-{self._destination}", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is ending, or the system is short of threads
                    return False
                self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            self._hand_over(self._parcels.get())
            if self._parcels.empty():
                self._lags = False

    def _hand_over(self, parcel: _Parcel) -> None:
        try:
            parcel.write(parcel.text)
            self._sink_failed = False
        except Exception:  # a sink is foreign code
            if not self._sink_failed:
                self._sink_failed = True
                logger.warning(
                    "The sink of the events for %r fails; events are lost.", self._destination, exc_info=True
                )
        finally:
            parcel.done.set()

    def _note_lag(self) -> None:
        if not self._lags:
            self._lags = True
            logger.warning("The sink of the events for %r is slow; nobody waits for it now.", self._destination)

    def _drop(self) -> None:
        self._dropped += 1
        if self._dropped.bit_count() == 1:  # at 1, 2, 4, 8 …
            logger.warning("Dropped %d event(s) for %r: its sink is stuck.", self._dropped, self._destination)


class Carriers:
    """All carriers of a process, by destination."""

    def __init__(self) -> None:
        self._forget()

    def to(self, destination: str) -> Carrier:
        carrier = self._carriers.get(destination)
        if carrier is None:
            with self._lock:
                carrier = self._carriers.setdefault(destination, Carrier(destination))
        return carrier

    def flush(self, timeout: float) -> None:
        """Wait until every event has been written, but for `timeout` seconds at most."""
        deadline = time.monotonic() + timeout
        for carrier in list(self._carriers.values()):
            if not carrier.is_idle():
                carrier.flush(deadline)

    def _forget(self) -> None:
        # Threads and held locks do not survive a fork: the child starts afresh.
        self._lock = threading.Lock()
        self._carriers: dict[str, Carrier] = {}


carriers = Carriers()
os.register_at_fork(after_in_child=carriers._forget)
atexit.register(carriers.flush, EXIT_SECONDS)
