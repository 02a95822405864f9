"""The rules of a rendezvous, one sentence each."""

from elasticjob.rendezvous.state import (
    Limits,
    Node,
    State,
    beat,
    close,
    join,
    nodes_waiting,
    remove,
    reopen,
    settle,
)

LIMITS = Limits(min_nodes=2, max_nodes=3)


def node(name: str, *, order: int = 0) -> Node:
    return Node(key=name, address=f"address-of-{name}", order=order)


def joined(*names: str, limits: Limits = LIMITS, state: State | None = None) -> State:
    state = state or State()
    for name in names:
        state = join(state, node(name), limits)
    return state


def complete(*names: str, limits: Limits = LIMITS) -> State:
    return settle(joined(*names, limits=limits), limits, last_call_over=True)


def test_a_round_completes_at_once_when_it_is_full() -> None:
    state = settle(joined("a", "b", "c"), LIMITS)
    assert state.complete
    assert [state.rank(name) for name in "abc"] == [0, 1, 2]


def test_a_round_below_its_minimum_never_completes() -> None:
    assert not settle(joined("a"), LIMITS, everyone_in=True, last_call_over=True).complete


def test_a_round_with_its_minimum_waits_for_the_last_call() -> None:
    state = joined("a", "b")
    assert state.last_call is not None
    assert not settle(state, LIMITS).complete
    assert settle(state, LIMITS, last_call_over=True).complete


def test_a_round_needs_no_last_call_when_nobody_else_is_wanted() -> None:
    assert settle(joined("a", "b"), LIMITS, everyone_in=True).complete


def test_dropping_below_the_minimum_takes_the_last_call_back_and_a_new_one_starts_afresh() -> None:
    first = joined("a", "b")
    below = remove(first, ["b"], LIMITS)
    assert below.last_call is None
    again = joined("c", state=below)
    assert again.last_call not in (None, first.last_call)


def test_ranks_follow_the_order_of_the_nodes_and_not_that_of_arrival() -> None:
    state = State()
    for name, order in (("late", 2), ("first", 0), ("middle", 1)):
        state = join(state, node(name, order=order), LIMITS)
    state = settle(state, LIMITS)
    assert [state.rank(name) for name in ("first", "middle", "late")] == [0, 1, 2]


def test_joining_twice_changes_nothing() -> None:
    state = joined("a")
    assert joined("a", state=state) == state


def test_a_newcomer_with_a_place_opens_the_next_round() -> None:
    state = joined("c", state=complete("a", "b"))
    assert (state.round, state.complete) == (1, False)
    assert list(state.participants) == ["c"]
    assert set(state.previous) == {"a", "b"}
    assert nodes_waiting(state, round=0) == 1


def test_a_newcomer_without_a_place_becomes_a_spare_and_disturbs_nobody() -> None:
    full = complete("a", "b", "c")
    state = joined("d", state=full)
    assert list(state.spares) == ["d"]
    assert state.complete
    assert nodes_waiting(state, round=0) == 0


def test_a_lost_participant_opens_the_next_round_and_the_first_spare_moves_up() -> None:
    state = joined("d", "e", state=complete("a", "b", "c"))
    state = remove(state, ["b"], LIMITS)
    assert state.round == 1
    assert list(state.participants) == ["d"]
    assert list(state.spares) == ["e"]
    assert set(state.previous) == {"a", "c"}


def test_members_of_the_last_round_keep_their_places_until_they_re_join() -> None:
    state = remove(complete("a", "b", "c"), ["c"], LIMITS)
    state = joined("x", "y", state=state)
    assert list(state.participants) == ["x"]
    assert list(state.spares) == ["y"]
    state = joined("a", "b", state=state)
    assert set(settle(state, LIMITS).participants) == {"x", "a", "b"}


def test_survivors_are_told_even_if_nobody_has_joined_the_next_round() -> None:
    assert nodes_waiting(remove(complete("a", "b", "c"), ["c"], LIMITS), round=0) == 1


def test_many_losses_at_once_are_one_round() -> None:
    limits = Limits(min_nodes=1, max_nodes=32)
    state = complete(*(f"n{i}" for i in range(32)), limits=limits)
    assert remove(state, [f"n{i}" for i in range(30)], limits).round == 1


def test_newcomers_do_not_start_alone_while_the_last_group_may_still_train() -> None:
    limits = Limits(min_nodes=1, max_nodes=4)
    state = joined("c", state=complete("a", "b", limits=limits), limits=limits)
    assert not settle(state, limits, last_call_over=True).complete
    state = joined("a", state=state, limits=limits)
    state = settle(state, limits, last_call_over=True)
    assert set(state.participants) == {"a", "c"}
    assert nodes_waiting(state, round=0) == 2


def test_a_participant_that_re_enters_opens_the_next_round() -> None:
    state = joined("a", state=complete("a", "b"))
    assert (state.round, list(state.participants), list(state.previous)) == (1, ["a"], ["b"])


def test_an_ordered_re_form_opens_the_next_round() -> None:
    state = reopen(complete("a", "b"), LIMITS)
    assert (state.round, state.complete, set(state.previous)) == (1, False, {"a", "b"})
    assert reopen(state, LIMITS) == state


def test_a_closed_rendezvous_never_changes_again() -> None:
    state = close(complete("a", "b"), "Succeeded")
    assert joined("a", "z", state=state) == state
    assert remove(state, ["a"], LIMITS) == state
    assert reopen(state, LIMITS) == state
    assert close(state, "Failed").closed == "Succeeded"


def test_only_known_nodes_have_heartbeats() -> None:
    assert beat(joined("a"), "a").beats == {"a": 1}
    assert beat(joined("a"), "ghost").beats == {}


def test_a_lost_node_leaves_no_heartbeat_behind() -> None:
    assert remove(beat(joined("a"), "a"), ["a"], LIMITS).beats == {}
