"""One node of a rendezvous that has no host: it reads the shared state, decides, and writes by compare-and-set.

Every node does the same with the same pure functions of `state`, so it does not matter who gets which write through. A
step is one such cycle. It never retries: a lost race is told to the caller, who pauses and steps again, which decides
anew from what is then stored.

Liveness: each node counts its own heartbeats in the state. Observers note by their own clocks when they saw a count
change (`observation`), and whoever first finds that a node has been silent for too long removes it. Two corrections
keep healthy nodes in: nobody removes itself, and time in which an observer saw nothing at all does not count against
others, so that an outage of the backend, during which nobody's heartbeat gets through, expels nobody.

Heartbeats are writes of the one state, so a run as a whole makes `BEATS_PER_SECOND` of them at most: from 51 nodes at
the usual interval of 5 s on, each node beats more rarely, and its silence is noticed correspondingly later.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.encoding import decode, encode
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousError
from elasticjob.rendezvous.observation import Observation, last_call_over, observe, silent
from elasticjob.rendezvous.state import Limits, Node, State, beat, close, join, remove, settle

BEATS_PER_SECOND = 10
"""How many heartbeats all nodes of a run together make at most."""

_T = TypeVar("_T")


class Intent(Enum):
    """What a node wants of a step. Whatever it wants, it also removes nodes that have fallen silent."""

    WATCH = "watch"
    """Only look."""
    JOIN = "join"
    """Be in the next round, and complete it if it is due."""
    BEAT = "beat"
    """Show that it is alive."""
    LEAVE = "leave"
    """Not be in any round."""
    CLOSE = "close"
    """End the rendezvous for everybody."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What all nodes of a rendezvous should agree on. Times are in seconds.

    Args:
        limits: How many nodes a round may have.
        last_call: How long a round with enough nodes waits for more.
        interval: How often nodes beat, if they are not too many.
        attempts: After so many intervals of silence a node is removed.
    """

    limits: Limits
    last_call: float
    interval: float
    attempts: int

    def beat_seconds(self, state: State) -> float:
        """How often nodes beat, as many as there are."""
        return max(self.interval, len(state.nodes) / BEATS_PER_SECOND)


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a step did.

    Args:
        intent: What was wanted.
        before: The state that was decided on.
        after: The state that is stored, as far as this node knows.
        written: False if another node was quicker, so that nothing was done.
    """

    intent: Intent
    before: State
    after: State
    written: bool


class Peer:
    """A node, its backend and what it has observed. Not thread-safe.

    Args:
        backend: Holds the state.
        node: This node.
        rules: What all nodes agree on.
        source: Names the stored state, for error messages.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        backend: RendezvousBackend,
        node: Node,
        rules: Rules,
        *,
        source: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._node = node
        self._rules = rules
        self._source = source
        self._clock = clock
        self._observation = Observation()
        self._expiry = rules.interval * rules.attempts
        self._expiry_until = 0.0
        self._decoded: tuple[bytes, State] | None = None
        self._has_joined = False
        self.round: int | None = None
        """The newest round that this node has been told to be in. Set by `enter_round`."""
        self.known: State | None = None
        """The newest state that this node has seen."""
        self.known_at = 0.0
        """When that was."""

    def enter_round(self, state: State) -> None:
        """This node now is in the complete round of `state`: from here on, joining means joining a newer one."""
        self.round = state.round

    def is_in(self, state: State) -> bool:
        """Whether this node is a member of a complete round that it has not been in before."""
        newer = self.round is None or state.round > self.round
        return state.complete and newer and self._node.key in state.participants

    @property
    def beat_seconds(self) -> float:
        """How often this node should beat, as far as it knows."""
        return self._rules.interval if self.known is None else self._rules.beat_seconds(self.known)

    def step(self, intent: Intent) -> Step:
        """Read, decide, and write if there is something to change.

        Raises:
            RendezvousConnectionError: The backend cannot be reached, or failed in a way of its own.
            RendezvousStateError: The stored state is corrupt, or the new one is too large.
        """
        before, token = self._read()
        after = self._decide(before, intent)
        if after == before:
            step = Step(intent=intent, before=before, after=before, written=True)
        else:
            step = self._write(intent, before, after, token)
        if intent is Intent.JOIN and step.written:
            self._has_joined = True
        return step

    def _decide(self, state: State, intent: Intent) -> State:
        """The state as this node would have it."""
        me, limits = self._node, self._rules.limits
        if intent is Intent.CLOSE:
            return close(state, f"closed by node {me.name or me.address}")
        if intent is Intent.LEAVE:
            return remove(state, [me.key], limits)
        state = remove(state, self._gone(state, intent), limits)
        if intent is Intent.BEAT and state.closed is None:
            return beat(state, me.key)
        if intent is Intent.JOIN and not self.is_in(state):
            state = join(state, me, limits)
            return settle(state, limits, last_call_over=self._last_call_over(state))
        return state

    def _gone(self, state: State, intent: Intent) -> frozenset[str]:
        """Nodes that have fallen silent and, when this node comes for the first time, those that it replaces.

        A pod that returns under the same name is a new node, and its predecessor is gone for certain. Only the first
        join may conclude that, lest two processes of one name drive each other out for ever.
        """
        me = self._node
        gone = silent(self._observation, now=self._clock(), expiry=self._expiry)
        if intent is Intent.JOIN and not self._has_joined and me.name:
            gone |= {key for key, node in state.nodes.items() if (node.name, node.local_id) == (me.name, me.local_id)}
        return gone - {me.key}

    def _last_call_over(self, state: State) -> bool:
        watched = self._observation.last_call
        if watched is None or watched[0] != state.last_call:
            return False
        return last_call_over(self._observation, now=self._clock(), timeout=self._rules.last_call)

    def _read(self) -> tuple[State, Token | None]:
        stored = self._calling(self._backend.get_state)
        if stored is None:
            # Nobody has written yet, or the state was taken away: no round may have the number of an earlier one.
            first = State(round=0 if self.round is None else self.round + 1)
            self._note(first)
            return first, None
        data, token = stored
        state = self._decode(data)
        self._note(state)
        return state, token

    def _decode(self, data: bytes) -> State:
        """Decode, or return the state of last time if it has not changed; most reads find that."""
        if self._decoded is None or self._decoded[0] != data:
            self._decoded = (data, decode(data, source=self._source))
        return self._decoded[1]

    def _write(self, intent: Intent, before: State, after: State, token: Token | None) -> Step:
        data = encode(after)
        answer = self._calling(lambda: self._backend.set_state(data, token))
        if answer is None:  # the backend does not say what it did
            stored = self._calling(self._backend.get_state)
            written, current = stored is not None and stored[0] == data, None if stored is None else stored[0]
        else:
            current, _, written = answer
        if not written:
            after = before if current is None else self._decode(current)
        self._note(after)
        return Step(intent=intent, before=before, after=after, written=written)

    def _note(self, state: State) -> None:
        now = self._clock()
        if self.known is not None:
            blind = now - self.known_at - self._rules.interval
            if blind > 0:
                self._observation = _forgive(self._observation, blind)
        self._observation = observe(self._observation, state, now=now)
        self._adapt_expiry(state, now)
        self.known, self.known_at = state, now

    def _adapt_expiry(self, state: State, now: float) -> None:
        """Be as patient as the rarest beating demands that was in force a moment ago.

        When many nodes leave at once, those that stay may beat more often again, but have not done so yet.
        """
        expiry = self._rules.beat_seconds(state) * self._rules.attempts
        if expiry >= self._expiry or now >= self._expiry_until:
            self._expiry, self._expiry_until = expiry, now + max(expiry, self._expiry)

    def _calling(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except RendezvousError:
            raise
        except Exception as error:  # a backend may be anybody's code
            raise RendezvousConnectionError(
                f"{self._source}: the backend failed with {type(error).__name__}: {error}"
            ) from error


def _forgive(observation: Observation, seconds: float) -> Observation:
    """Count `seconds` less of everybody's silence."""
    beats = {key: (count, since + seconds) for key, (count, since) in observation.beats.items()}
    return replace(observation, beats=MappingProxyType(beats))
