"""Time in a rendezvous: what one observer has seen change, by its own monotonic clock.

The state carries no time stamps. An observer notes *when it saw* a heartbeat counter or the last-call marker change
and measures from there, as client-go's leader election does. A wrong or stepping wall clock on any machine therefore
cannot expire a healthy node; a late observer only waits longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from elasticjob.rendezvous.state import State


@dataclass(frozen=True, kw_only=True)
class Observation:
    """When the observer last saw each thing change, in seconds of its monotonic clock."""

    beats: Mapping[str, tuple[int, float]] = field(default_factory=lambda: MappingProxyType({}))
    last_call: tuple[int, float] | None = None


def observe(observation: Observation, state: State, *, now: float) -> Observation:
    """Take note of the state as it is at `now`."""
    beats = {}
    for key in state.nodes:
        count = state.beats.get(key, 0)
        seen = observation.beats.get(key)
        beats[key] = seen if seen is not None and seen[0] == count else (count, now)
    return Observation(beats=MappingProxyType(beats), last_call=_observe_last_call(observation, state, now))


def silent(observation: Observation, *, now: float, expiry: float) -> frozenset[str]:
    """Keys of the nodes whose counters have stood still for more than `expiry` seconds."""
    return frozenset(key for key, (_, since) in observation.beats.items() if now - since > expiry)


def last_call_over(observation: Observation, *, now: float, timeout: float) -> bool:
    """Whether the last call that is being watched has lasted `timeout` seconds."""
    return observation.last_call is not None and now - observation.last_call[1] >= timeout


def _observe_last_call(observation: Observation, state: State, now: float) -> tuple[int, float] | None:
    if state.last_call is None:
        return None
    seen = observation.last_call
    return seen if seen is not None and seen[0] == state.last_call else (state.last_call, now)
