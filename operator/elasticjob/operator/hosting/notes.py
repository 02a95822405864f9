"""Notes that any thread leaves for the event loop: what is wanted of a run."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from elasticjob.rendezvous.orders import RunOrders


@dataclass(frozen=True)
class Gone:
    """The note that a job does not exist any more. The orders say where the state of its run is kept."""

    orders: RunOrders


Note = RunOrders | Gone | None
"""None: the run has no nodes (any more)."""


class Notes:
    """The newest note of each run, until the loop takes it.

    Args:
        take: Called on the loop with the id of a run and the note.
    """

    def __init__(self, take: Callable[[str, Note], None]) -> None:
        self._take = take
        self._guard = threading.Lock()
        self._inbox: dict[str, Note] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def post(self, run_id: str, note: Note) -> None:
        """Leave a note, from any thread; it replaces an earlier one that is not taken yet."""
        with self._guard:
            is_first = not self._inbox
            # The order of notes is that of their arrival: a run that is forgotten and comes back is a new one.
            self._inbox.pop(run_id, None)
            self._inbox[run_id] = note
            loop = self._loop
        if loop is not None and is_first:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(self._empty)

    def start(self) -> None:
        """Begin on the running loop, with the notes that are there already."""
        with self._guard:
            self._loop = asyncio.get_running_loop()
        self._empty()

    def stop(self) -> None:
        """Take no further note."""
        with self._guard:
            self._loop = None

    def _empty(self) -> None:
        with self._guard:
            notes, self._inbox = self._inbox, {}
        for run_id, note in notes.items():
            self._take(run_id, note)
