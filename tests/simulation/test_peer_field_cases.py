"""Faults that elastic training met in the field, replayed among peers in virtual time."""

import pytest

from elasticjob.rendezvous.encoding import encode
from elasticjob.rendezvous.state import Node, State, beat
from tests.simulation.virtual_run import Mode, VirtualRun


@pytest.fixture
def three() -> VirtualRun:
    """Three nodes of 1 to 4 train in round 0."""
    run = VirtualRun(min_nodes=1, max_nodes=4)
    run.start("a", "b", "c")
    run.advance(6)
    assert run.members() == {"a": 0, "b": 1, "c": 2}
    assert run.state.round == 0
    return run


# pytorch#67742, pytorch#147064: one node that leaves must not end the run for all.


def test_a_node_that_leaves_closes_nothing_and_comes_back(three: VirtualRun) -> None:
    three.leave("b")
    assert three.waiting("a") > 0
    three.advance(2)
    three.start("b")
    three.advance(7)
    assert three.state.closed is None
    assert three.members() == {"a": 0, "b": 1, "c": 2}
    assert three.state.round >= 1


def test_a_node_that_leaves_an_open_round_takes_the_last_call_back() -> None:
    run = VirtualRun(min_nodes=2, max_nodes=3)
    run.start("a", "b")
    run.advance(1)
    run.leave("b")
    assert run.state.last_call is None
    run.advance(20)
    assert not run.state.complete
    assert run.state.closed is None


# pytorch#111646: a participant that dies silently must make the others re-form.


def test_a_lost_node_makes_the_survivors_re_form(three: VirtualRun) -> None:
    three.kill("c")
    three.advance(3 * 1 + 2)
    assert [three.agents[name].mode for name in "ab"] == [Mode.JOINING, Mode.JOINING]
    three.advance(5)
    assert three.members() == {"a": 0, "b": 1}
    assert three.state.round == 1


def test_a_node_that_returns_before_it_was_missed_trains_with_the_others(three: VirtualRun) -> None:
    three.kill("c")
    three.advance(1)
    three.start("c")
    three.advance(8)
    assert three.members() == {"a": 0, "b": 1, "c": 2}
    assert three.state.round == 1


# pytorch#114097: nodes beyond the maximum.


@pytest.fixture
def spared() -> VirtualRun:
    """Two of four nodes train, the maximum."""
    run = VirtualRun(min_nodes=2, max_nodes=2)
    run.start("a", "b", "c", "d")
    run.advance(2)
    assert len(run.members()) == len(run.spares()) == 2
    return run


def test_spares_disturb_nobody_and_stay_alive(spared: VirtualRun) -> None:
    members = spared.members()
    for _ in range(30):
        spared.advance(1)
        assert [spared.waiting(name) for name in members] == [0, 0]
    assert spared.members() == members
    assert len(spared.spares()) == 2
    assert spared.state.round == 0


def test_exactly_one_spare_takes_the_place_of_a_lost_node(spared: VirtualRun) -> None:
    lost, survivor = spared.members()
    spared.kill(lost)
    spared.advance(6)
    assert len(spared.members()) == 2
    assert survivor in spared.members()
    assert len(spared.spares()) == 1


def test_spares_are_told_at_once_when_the_run_ends(spared: VirtualRun) -> None:
    spares = spared.spares()
    spared.close(next(iter(spared.members())))
    spared.advance(0.5)
    assert {spared.agents[name].mode for name in spares} == {Mode.TOLD}


# basilica#493, dlrover#903: the edges of the last call. Minimum 2, maximum 4, 5 s.


@pytest.fixture
def edges() -> VirtualRun:
    return VirtualRun(min_nodes=2, max_nodes=4)


def test_a_node_within_the_last_call_is_in_and_one_after_it_makes_the_next_round(edges: VirtualRun) -> None:
    edges.start("a", "b")
    edges.advance(4.75)
    edges.start("c")
    edges.advance(1)
    assert edges.members() == {"a": 0, "b": 1, "c": 2}
    edges.start("d")
    edges.advance(2)
    assert edges.members() == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert edges.state.round == 1


def test_below_the_minimum_nothing_completes_and_the_window_starts_afresh(edges: VirtualRun) -> None:
    edges.start("a", "b")
    edges.advance(2)
    edges.leave("b")
    edges.advance(8)
    assert not edges.state.complete
    edges.start("c")
    edges.advance(4.5)
    assert not edges.state.complete
    edges.advance(1.5)
    assert edges.members() == {"a": 0, "c": 1}


def test_three_that_arrive_in_one_instant_complete(edges: VirtualRun) -> None:
    edges.start("a", "b", "c")
    edges.advance(6)
    assert len(edges.members()) == 3


def test_two_complete_after_the_last_call(edges: VirtualRun) -> None:
    edges.start("a", "b")
    edges.advance(4.5)
    assert not edges.state.complete
    edges.advance(1.5)
    assert len(edges.members()) == 2


def test_a_full_round_needs_no_last_call() -> None:
    run = VirtualRun(min_nodes=3, max_nodes=3)
    run.start("a", "b", "c")
    run.advance(0.5)
    assert len(run.members()) == 3


def test_any_survivor_completes_the_round_when_the_others_are_killed_in_the_last_call() -> None:
    run = VirtualRun(min_nodes=1, max_nodes=4)
    run.start("a", "b")
    run.advance(4.75)
    run.kill("a")
    run.advance(10)
    assert run.members() == {"b": 0}


# horovod#3494: survivors below the minimum meet the newcomers in one round.


def test_a_survivor_below_the_minimum_waits_and_meets_the_newcomers_in_one_round() -> None:
    run = VirtualRun(min_nodes=2, max_nodes=3)
    run.start("a", "b", "c")
    run.advance(1)
    run.leave("b")
    run.leave("c")
    run.advance(20)
    assert run.agents["a"].mode is Mode.JOINING
    assert not run.state.complete
    run.start("d", "e")
    run.advance(1)
    assert run.members() == {"a": 0, "d": 1, "e": 2}
    assert {run.agents[name].memberships[-1].round for name in "ade"} == {run.state.round}


# horovod#3319, pytorch#147064: a pod returns under its old name at once.


def test_a_pod_that_returns_under_its_name_replaces_its_predecessor_at_once() -> None:
    run = VirtualRun(min_nodes=2, max_nodes=2)
    run.start("a", pod_name="demo-0")
    run.start("b", pod_name="demo-1")
    run.advance(1)
    for attempt in range(1, 11):
        run.kill("b")
        run.start("b", pod_name="demo-1")
        run.advance(1)
        assert run.members() == {"a": 0, "b": 1}
        assert run.state.round == attempt
        assert [node.name for node in run.state.nodes.values()] == ["demo-0", "demo-1"]


def test_two_processes_of_one_name_do_not_drive_each_other_out_for_ever() -> None:
    run = VirtualRun(min_nodes=2, max_nodes=2)
    run.start("a", "b", pod_name="same")
    run.advance(3)
    assert run.members() == {"a": 0, "b": 1}


# pytorch#194870: outages of the backend.


def test_an_outage_of_the_backend_expels_nobody(three: VirtualRun) -> None:
    for agent in three.agents.values():
        agent.link.is_cut = True
    three.advance(100)
    for agent in three.agents.values():
        agent.link.is_cut = False
    three.advance(10)
    assert three.members() == {"a": 0, "b": 1, "c": 2}
    assert three.state.round == 0


def test_a_node_that_was_expelled_meanwhile_finds_out_and_re_joins(three: VirtualRun) -> None:
    three.agents["b"].link.is_cut = True
    three.advance(12)
    assert three.members() == {"a": 0, "c": 1}
    assert three.agents["b"].mode is Mode.TRAINING
    three.agents["b"].link.is_cut = False
    three.advance(8)
    assert three.members() == {"a": 0, "b": 1, "c": 2}


def test_a_process_that_was_stopped_for_a_while_expels_nobody(three: VirtualRun) -> None:
    three.agents["a"].is_paused = True
    three.advance(2)
    three.agents["a"].is_paused = False
    three.advance(10)
    assert three.members() == {"a": 0, "b": 1, "c": 2}
    assert three.state.round == 0


def test_clocks_that_differ_by_days_expel_nobody() -> None:
    run = VirtualRun(min_nodes=2, max_nodes=2)
    run.start("a", "b")
    run.agents["b"].peer._clock = lambda: run.now + 86_400 * 30
    run.advance(30)
    assert run.members() == {"a": 0, "b": 1}
    assert run.state.round == 0


def test_a_state_that_was_taken_away_leads_to_a_later_round(three: VirtualRun) -> None:
    three.backend.__init__(three.rules.limits)  # type: ignore[misc]
    assert three.waiting("a") == 1
    three.advance(8)
    assert three.members() == {"a": 0, "b": 1, "c": 2}
    assert three.state.round == 1


def test_a_training_run_writes_heartbeats_and_nothing_else(three: VirtualRun) -> None:
    before = three.backend.writes
    three.advance(10)
    assert three.backend.writes - before <= 3 * 10 / 0.75


def test_a_node_that_cannot_beat_does_not_remove_itself() -> None:
    run = VirtualRun(min_nodes=1, max_nodes=1)
    run.start("a")
    run.advance(1)
    for _ in range(20):
        run.now += 1
        run.agents["a"].act()
    assert run.members() == {"a": 0}
    assert run.state.round == 0


def test_newcomers_do_not_train_beside_members_that_have_not_noticed_them_yet(three: VirtualRun) -> None:
    for name in "abc":
        three.agents[name].is_deaf = True
    three.start("d")
    three.advance(20)
    assert three.agents["d"].mode is Mode.JOINING
    three.agents["b"].is_deaf = False
    three.advance(7)
    assert three.members() == {"b": 0, "d": 1}


def test_a_last_call_that_begins_anew_is_not_taken_for_the_one_before() -> None:
    run = VirtualRun(min_nodes=1, max_nodes=4)
    run.start("a", "late")
    watcher = run.agents.pop("late")
    run.advance(1)
    run.kill("a")
    for _ in range(8):
        run.now += 1
        watcher.peer._note(run.state)  # it sees the call go on, and "a" fall silent
    assert run.now > run.rules.last_call
    watcher.act()
    assert set(run.state.participants) == {watcher.node.key}
    assert not run.state.complete


# pytorch#185930: many nodes share one object.


@pytest.fixture
def crowd() -> VirtualRun:
    """Forty nodes that train; at ten heartbeats a second for all, each beats every 4 s, not every second."""
    run = VirtualRun(min_nodes=1, max_nodes=40)
    run.start(*(f"n{number:02}" for number in range(40)))
    run.advance(1)
    assert len(run.members()) == 40
    return run


def test_many_nodes_make_no_more_heartbeats_than_the_backend_can_take(crowd: VirtualRun) -> None:
    before = crowd.backend.writes
    crowd.advance(30)
    assert crowd.backend.writes - before <= 30 * 10 / 0.8
    assert len(crowd.members()) == 40
    assert crowd.state.round == 0


def test_one_of_many_that_dies_is_noticed_after_three_of_its_intervals(crowd: VirtualRun) -> None:
    crowd.kill("n39")
    crowd.advance(11)
    assert crowd.state.round == 0
    crowd.advance(10)
    assert len(crowd.members()) == 39


def test_when_most_nodes_leave_the_rest_is_given_time_to_beat_more_often(crowd: VirtualRun) -> None:
    crowd.advance(20)
    for name in ("n00", "n01"):
        crowd.agents[name].beat()
        crowd.agents[name].next_beat = crowd.now + 4
    crowd.advance(3.5)
    for number in range(2, 40):
        crowd.leave(f"n{number:02}")
    for _ in range(32):
        crowd.advance(0.25)
        assert {crowd.agents[name].node.key for name in ("n00", "n01")} <= crowd.state.nodes.keys()
    assert crowd.members() == {"n00": 0, "n01": 1}
    before = crowd.state.round
    crowd.advance(30)
    assert crowd.state.round == before
    crowd.kill("n01")
    crowd.advance(10)
    assert crowd.members() == {"n00": 0}


def test_the_state_of_a_thousand_nodes_fits_its_budget() -> None:
    nodes = [
        Node(key=f"{number:032x}", address=f"dummy{number}.dummy1-dummy1-dummy1-dummy1.com", pid=12345)
        for number in range(1000)
    ]
    state = State(participants={node.key: node for node in nodes})
    for node in nodes:
        state = beat(state, node.key)
    assert len(encode(state)) <= 160 * 1024
