"""Drives a `Peer`: from single steps to "wait until", with pauses, deadlines and outages, for several threads.

Lost races are met with pauses of random length whose limit doubles ("full jitter"), so that many nodes that want to
write at once spread out. While they wait, nodes poll the less often the more of them there are.
"""

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from elasticjob.rendezvous.bounded import run_within
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousTimeoutError
from elasticjob.rendezvous.peer import Intent, Peer, Step
from elasticjob.rendezvous.settings import RendezvousSettings
from elasticjob.rendezvous.state import State

logger = logging.getLogger(__name__)

READS_PER_SECOND = 200
"""How many reads of the state all nodes of a run together make at most while they wait."""
LEAST_POLL_SECONDS, MOST_POLL_SECONDS = 0.1, 1.0
EARLIEST_BEAT = 0.8
"""Beats come after 80 to 100 % of the interval."""
FIRST_BACKOFF_SECONDS = 0.05
LEAST_BACKOFF_CAP_SECONDS, MOST_BACKOFF_CAP_SECONDS = 0.5, 30.0
BACKOFF_CAP_SECONDS_PER_NODE = 0.1
"""With so much time for each node that wants to write, about half of the writes get through at 50 ms a cycle."""
MOST_ASKED_SECONDS = 30.0
"""Longest pause that a backend can ask for."""
LEAST_LOCK_SECONDS = 0.5
"""How long a step waits for one of another thread at least: that one need not be stuck."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Where time and chance come from. `clock` gives monotonic seconds."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.Random)


class PeerDriver:
    """Thread-safe use of a peer. No call waits for another one's without a limit: that one may be stuck.

    Args:
        peer: The node.
        settings: Time-outs and limits.
        timing: Clock, sleep and chance.
        told: Called with each step.
    """

    def __init__(
        self, peer: Peer, settings: RendezvousSettings, *, timing: Timing, told: Callable[[Step], None]
    ) -> None:
        self._peer = peer
        self._settings = settings
        self._timing = timing
        self._told = told
        # Backends need not be thread-safe.
        self._lock = threading.Lock()
        self._outage_since: float | None = None
        self._last_beat = timing.clock()
        self._asked_pause = 0.0

    def deadline(self, timeout: float) -> float:
        """The time in `timeout` seconds, on the monotonic clock."""
        return self._timing.clock() + timeout

    def left(self, deadline: float) -> float:
        """Seconds until the deadline, 0 when it is over."""
        return max(0.0, deadline - self._timing.clock())

    def step(self, intent: Intent, *, wait: float) -> Step:
        """One step, waiting for at most `wait` seconds for another thread that is in one.

        Raises:
            RendezvousConnectionError: The backend does not answer, neither to this call nor to that of another thread.
            RendezvousStateError: The stored state is corrupt.
        """
        wait = max(wait, LEAST_LOCK_SECONDS)
        if not self._lock.acquire(timeout=wait):
            raise RendezvousConnectionError(
                f"The backend of the rendezvous '{self._settings.run_id}' has not answered an earlier call for "
                f"{wait:.1f} s."
            )
        try:
            step = self._peer.step(intent)
        finally:
            self._lock.release()
        self._end_outage()
        self._told(step)
        return step

    def persist(self, intent: Intent, deadline: float) -> None:
        """Step until the intent is stored.

        Raises:
            RendezvousTimeoutError: Other nodes were quicker until the deadline.
        """
        for attempt in itertools.count():
            step = self.step(intent, wait=self.left(deadline))
            if step.written:
                return
            self.back_off(attempt, step.after, deadline)
            if not self.left(deadline):
                raise RendezvousTimeoutError(
                    f"To {intent.value} the rendezvous '{self._settings.run_id}' did not succeed in {attempt + 1} "
                    "attempt(s): other nodes were always quicker to write."
                )

    def finish(self, intent: Intent, timeout: float) -> None:
        """Get a last intent through, in `timeout` seconds at most, whatever hangs.

        Raises:
            RendezvousTimeoutError: It did not get through in time.
        """
        deadline = self.deadline(timeout)
        run_within(
            timeout,
            lambda: self.persist(intent, deadline),
            what=f"To {intent.value} the rendezvous '{self._settings.run_id}'",
        )

    def recent_state(self) -> State:
        """The state as it was a moment ago or, during an outage, before that.

        Raises:
            RendezvousConnectionError: The backend has never answered yet.
            RendezvousStateError: The stored state is corrupt.
        """
        known = self._peer.known
        if known is not None:
            fresh = self._timing.clock() - self._peer.known_at < poll_seconds(known)
            if fresh or self._outage_since is not None:
                return known
        try:
            return self.step(Intent.WATCH, wait=self._settings.timeout.heartbeat.total_seconds()).after
        except RendezvousConnectionError as error:
            if known is None:
                raise
            self.note_outage(error)
            return known

    def back_off(self, attempt: int, state: State | None, deadline: float, *, at_least: float = 0.0) -> None:
        """Pause after attempt number `attempt`, counted from 0, has failed.

        Args:
            state: The state as it is now, if known: it tells how many nodes may want to write.
            at_least: Seconds that the backend asked for, of which 30 are granted. The pause is added to them, so that
                nodes do not come back all at once.
        """
        cap = self._settings.cas_backoff_max_seconds or self._backoff_cap(state)
        pause = self._timing.rng.uniform(0.0, min(cap, FIRST_BACKOFF_SECONDS * 2 ** min(attempt, 16)))
        self._timing.sleep(min(min(MOST_ASKED_SECONDS, at_least) + pause, self.left(deadline)))

    def _backoff_cap(self, state: State | None) -> float:
        writers = 0
        if state is not None:
            joining = 0 if state.complete else self._settings.max_nodes - len(state.participants)
            writers = max(joining, len(state.nodes) // 8)
        wanted = BACKOFF_CAP_SECONDS_PER_NODE * writers
        return min(MOST_BACKOFF_CAP_SECONDS, max(LEAST_BACKOFF_CAP_SECONDS, wanted))

    def wait_for_news(self, state: State, deadline: float) -> None:
        """Pause until it is time to look at the state again."""
        self._timing.sleep(min(poll_seconds(state), self.left(deadline)))

    def beat(self) -> bool:
        """One heartbeat, if it is due; says whether it was the first to fail of an outage. Never raises.

        That other nodes were quicker is no failure: there are several attempts before a node counts as dead.
        """
        try:
            wait = self._settings.timeout.heartbeat.total_seconds()
            if self._timing.clock() < self._last_beat + EARLIEST_BEAT * self._peer.beat_seconds:
                self.step(Intent.WATCH, wait=wait)
            else:
                self.persist(Intent.BEAT, self.deadline(wait))
                self._last_beat = self._timing.clock()
        except RendezvousTimeoutError as error:
            logger.debug("A heartbeat is put off: %s", error)
        except RendezvousConnectionError as error:
            self._asked_pause = min(MOST_ASKED_SECONDS, error.retry_after)
            return self.note_outage(error)
        except Exception as error:  # the backend may be anybody's code
            return self.note_outage(error)
        return False

    def next_beat(self) -> float:
        """Seconds until `beat` is to be called next: a little early at random, so that nodes do not beat in step."""
        asked, self._asked_pause = self._asked_pause, 0.0
        pause = self._timing.rng.uniform(EARLIEST_BEAT, 1.0) * self._settings.keep_alive_interval.total_seconds()
        return asked + pause

    def note_outage(self, error: Exception) -> bool:
        """Warn once for an outage; says whether it has just begun."""
        if self._outage_since is not None:
            return False
        self._outage_since = self._timing.clock()
        logger.warning("The rendezvous '%s' cannot be reached, trying on: %s", self._settings.run_id, error)
        return True

    def _end_outage(self) -> None:
        since, self._outage_since = self._outage_since, None
        if since is not None:
            seconds = self._timing.clock() - since
            logger.info("The rendezvous '%s' is back after %.1f s.", self._settings.run_id, seconds)


def poll_seconds(state: State) -> float:
    """How long a node waits before it looks at the state again."""
    return min(MOST_POLL_SECONDS, max(LEAST_POLL_SECONDS, len(state.nodes) / READS_PER_SECOND))
