"""A thread that asks one object for a sign of life again and again, whatever happens.

It meets every exception, holds no strong reference to what it serves, and ends when that is gone or it is told to stop.
Nobody ever waits for it for more than a moment: it may be stuck in a call.
"""

import logging
import threading
import weakref
from collections.abc import Callable

logger = logging.getLogger(__name__)

STOP_SECONDS = 0.2
"""How long a caller that stops the thread waits for it to end."""


class BeatThread:
    """Calls a method of an object in the background.

    Args:
        method: Bound method; says in how many seconds it wants to be called next.
        name: Name of the thread.
    """

    def __init__(self, method: Callable[[], float], *, name: str) -> None:
        self._method = weakref.WeakMethod(method)
        self._name = name
        self._lock = threading.Lock()
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self, first: float) -> None:
        """Call for the first time in `first` seconds. Harmless if the thread runs already."""
        with self._lock:
            if self._stop is not None:
                return
            stop = threading.Event()
            thread = threading.Thread(target=_run, args=(self._method, stop, first), name=self._name, daemon=True)
            thread.start()
            self._stop, self._thread = stop, thread
        weakref.finalize(self, stop.set).atexit = False

    def stop(self) -> None:
        """Call no more. Does not wait for a call that is stuck. Harmless if nothing runs."""
        with self._lock:
            stop, thread = self._stop, self._thread
            self._stop = self._thread = None
        if stop is None or thread is None:
            return
        stop.set()
        if thread is not threading.current_thread():
            thread.join(STOP_SECONDS)


def _run(weak: "weakref.WeakMethod[Callable[[], float]]", stop: threading.Event, pause: float) -> None:
    while not stop.wait(pause):
        method = weak()
        if method is None:
            return
        try:
            pause = method()
        except BaseException:  # this thread outlives everything; the method meets what it knows of
            logger.exception("A heartbeat failed unexpectedly; the next one follows in %.1f s.", pause)
        del method
