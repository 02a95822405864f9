"""A thread that repeats one call at a fixed interval, and outlives any exception of that call."""

import logging
import threading
from collections.abc import Callable

_logger = logging.getLogger(__name__)


class KeepAlive:
    """Calls `beat` every `interval` seconds until it is stopped. The first call comes after one interval.

    The thread is a daemon: it does not keep the process from ending, and neither does a call that hangs.
    """

    def __init__(self, beat: Callable[[], object], *, interval: float, name: str) -> None:
        self._beat = beat
        self._interval = interval
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def stop(self, *, wait: float = 0.0) -> None:
        """End the thread. For at most `wait` seconds, let a call end that is under way; none begins any more."""
        self._stopped.set()
        if wait:
            self._thread.join(wait)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self._beat()
            except Exception:
                _logger.warning("%s failed; trying again in %g s", self._thread.name, self._interval, exc_info=True)
