"""Time is measured from what the observer saw change, by its own clock."""

from elasticjob.rendezvous.observation import Observation, last_call_over, observe, silent
from elasticjob.rendezvous.state import Limits, Node, State, beat, join, remove

LIMITS = Limits(min_nodes=1, max_nodes=3)


def with_nodes(*names: str) -> State:
    state = State()
    for name in names:
        state = join(state, Node(key=name, address=name), LIMITS)
    return state


def test_a_node_is_silent_once_its_counter_has_stood_still_for_longer_than_the_expiry() -> None:
    state = with_nodes("a", "b")
    observation = observe(Observation(), state, now=100.0)
    observation = observe(observation, beat(state, "a"), now=110.0)
    assert silent(observation, now=115.0, expiry=15.0) == frozenset()
    assert silent(observation, now=115.1, expiry=15.0) == {"b"}


def test_a_node_that_the_observer_has_just_met_is_not_silent() -> None:
    observation = observe(Observation(), with_nodes("a"), now=1e9)
    assert silent(observation, now=1e9, expiry=15.0) == frozenset()


def test_a_node_that_is_gone_is_forgotten() -> None:
    state = with_nodes("a", "b")
    observation = observe(Observation(), state, now=0.0)
    observation = observe(observation, remove(state, ["b"], LIMITS), now=1.0)
    assert set(observation.beats) == {"a"}


def test_each_last_call_has_its_full_time() -> None:
    state = with_nodes("a")
    observation = observe(Observation(), state, now=0.0)
    assert not last_call_over(observation, now=4.9, timeout=5.0)
    assert last_call_over(observation, now=5.0, timeout=5.0)
    again = join(remove(state, ["a"], LIMITS), Node(key="b", address="b"), LIMITS)
    observation = observe(observation, again, now=6.0)
    assert not last_call_over(observation, now=10.9, timeout=5.0)
    assert last_call_over(observation, now=11.0, timeout=5.0)
