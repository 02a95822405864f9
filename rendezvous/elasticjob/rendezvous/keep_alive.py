"""A thread that gives a sign of life again and again, whatever happens.

It meets every exception, holds no strong reference to an object whose method it calls, and ends when that or the
`KeepAlive` itself is gone, or when it is told to stop. As a daemon it never keeps the process from ending, and nobody
waits for it for more than a given moment: it may be stuck in a call.
"""

import logging
import threading
import weakref
from collections.abc import Callable
from types import MethodType

logger = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 3600.0
"""Longest pause, whatever a call says: to wait for more seconds than a clock can count is an error."""
STOP_SECONDS = 0.2
"""How long a caller that stops the thread waits for it to end, unless it says otherwise."""

Beat = Callable[[], float]
"""Gives one sign of life and says in how many seconds the next one is due."""


class KeepAlive:
    """Calls a function in the background until it is stopped.

    Args:
        beat: Function or bound method; of a method's object only a weak reference is kept.
        name: Name of the thread.
    """

    def __init__(self, beat: Beat, *, name: str) -> None:
        self._beat: Callable[[], Beat | None] = weakref.WeakMethod(beat) if _is_method(beat) else lambda: beat
        self._name = name
        self._lock = threading.Lock()
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def start(self, first: float) -> None:
        """Call for the first time in `first` seconds. Harmless if the thread runs already."""
        with self._lock:
            if self._stop is not None:
                return
            stop = threading.Event()
            thread = threading.Thread(target=_run, args=(self._beat, stop, first), name=self._name, daemon=True)
            thread.start()
            self._stop, self._thread = stop, thread
        weakref.finalize(self, stop.set).atexit = False

    def stop(self, *, wait: float = STOP_SECONDS) -> None:
        """Call no more. Harmless if nothing runs.

        Args:
            wait: For so many seconds at most, let a call end that is under way; none begins any more.
        """
        with self._lock:
            stop, thread = self._stop, self._thread
            self._stop = self._thread = None
        if stop is None or thread is None:
            return
        stop.set()
        if thread is not threading.current_thread():
            thread.join(wait)


def _is_method(beat: Beat) -> bool:
    return isinstance(beat, MethodType)


def _run(beat: Callable[[], Beat | None], stop: threading.Event, pause: float) -> None:
    while not stop.wait(min(pause, LONGEST_PAUSE_SECONDS)):
        call = beat()
        if call is None:
            return
        try:
            pause = call()
        except BaseException:  # this thread outlives everything; the call meets what it knows of
            logger.warning("%s failed; trying again in %g s", threading.current_thread().name, pause, exc_info=True)
        del call
