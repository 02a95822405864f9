"""What a caller of the peer-to-peer rendezvous sees, with real threads and short time-outs."""

import gc
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from elasticjob.rendezvous.api import RendezvousParameters, RendezvousTimeout
from elasticjob.rendezvous.backends.memory import MemorySpace
from elasticjob.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, create_handler
from elasticjob.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousGracefulExitError,
    RendezvousTimeoutError,
)
from elasticjob.rendezvous.local_node import new_node
from elasticjob.rendezvous.store import InMemoryStore
from tests.unit.rendezvous.peer_run import PATIENCE, Backend, Run, eventually, leave, ranks


def test_nodes_that_join_get_ranks_by_address_and_one_meeting_point(run: Run) -> None:
    handlers = [run.handler(3, 3) for _ in range(3)]
    infos = run.join(*handlers)
    assert ranks(infos) == [(0, 3), (1, 3), (2, 3)]
    meeting = infos[0].result().bootstrap_store_info
    assert meeting is not None
    assert meeting.master_addr == "10.0.0.0"
    assert [info.result().bootstrap_store_info for info in infos] == [meeting] * 3
    assert [handler.num_nodes_waiting() for handler in handlers] == [0, 0, 0]


def test_many_nodes_that_join_at_once_get_each_rank_once(run: Run) -> None:
    handlers = [run.handler(16, 16) for _ in range(16)]
    assert sorted(ranks(run.join(*handlers))) == [(rank, 16) for rank in range(16)]
    assert run.state.round == 0


def test_each_round_has_a_store_and_a_meeting_point_of_its_own(run: Run) -> None:
    handler = run.handler()
    first = handler.next_rendezvous()
    first.store.set("key", b"first")
    second = handler.next_rendezvous()
    assert not second.store.check(["key"])
    assert run.store.check(["torch.rendezvous.run.0/key"])
    assert run.state.round == 1


def test_a_node_that_leaves_makes_the_others_re_form_and_closes_nothing(run: Run) -> None:
    handlers = [run.handler(1, 3) for _ in range(3)]
    assert len({rank for rank, _ in ranks(run.join(*handlers))}) == 3
    assert leave(handlers[0])
    eventually(lambda: handlers[1].num_nodes_waiting() > 0 and handlers[2].num_nodes_waiting() > 0)
    assert ranks(run.join(*handlers[1:])) == [(0, 2), (1, 2)]
    assert not handlers[1].is_closed()


def test_a_newcomer_that_has_a_place_makes_the_others_re_form(run: Run) -> None:
    first, second = run.handler(1, 2), run.handler(1, 2)
    assert ranks(run.join(first)) == [(0, 1)]
    assert first.num_nodes_waiting() == 0
    newcomer = run.join(second)
    eventually(lambda: first.num_nodes_waiting() == 1)
    assert ranks(run.join(first) + newcomer) == [(0, 2), (1, 2)]


def test_a_node_that_dies_silently_makes_the_others_re_form(run: Run) -> None:
    survivor, victim = (run.handler(1, 2, interval=0.2, attempts=5) for _ in range(2))
    assert ranks(run.join(survivor, victim)) == [(0, 2), (1, 2)]
    victim._beats.stop()
    eventually(lambda: survivor.num_nodes_waiting() > 0)
    assert ranks(run.join(survivor)) == [(0, 1)]


def test_a_spare_disturbs_nobody_and_ends_without_failure_when_the_run_is_closed(run: Run) -> None:
    member, spare = run.handler(), run.handler(join=0.2)
    assert ranks(run.join(member)) == [(0, 1)]
    [waiting] = run.join(spare)
    eventually(lambda: bool(run.state.spares))
    time.sleep(0.3)  # longer than the join time-out, which does not hold for spares
    assert member.num_nodes_waiting() == 0
    assert not waiting.done()
    member.set_closed()
    with pytest.raises(RendezvousGracefulExitError):
        waiting.result(PATIENCE)


def test_a_spare_takes_the_place_of_a_node_that_leaves(run: Run) -> None:
    member, spare = run.handler(), run.handler()
    assert ranks(run.join(member)) == [(0, 1)]
    waiting = run.join(spare)
    eventually(lambda: bool(run.state.spares))
    assert leave(member)
    assert ranks(waiting) == [(0, 1)]


def test_a_closed_rendezvous_stays_closed(run: Run) -> None:
    first, second = run.handler(), run.handler()
    first.set_closed()
    first.set_closed()
    assert second.is_closed()
    with pytest.raises(RendezvousClosedError, match=r"'run' is closed: closed by node 10\.0\.0\.0"):
        second.next_rendezvous()


def test_an_agent_that_fails_closes_nothing_and_one_that_ends_well_closes_the_run(run: Run) -> None:
    failing, ending = run.handler(), run.handler()
    assert leave(failing)
    assert not ending.is_closed()
    assert ending.shutdown()
    assert failing.is_closed()


@pytest.mark.parametrize("closes", [True, False])
def test_an_option_settles_whether_shutdown_closes_the_run(run: Run, closes: bool) -> None:
    handler, other = run.handler(close_on_shutdown=closes), run.handler()
    assert leave(handler) if closes else handler.shutdown()
    assert other.is_closed() is closes


def test_shutdown_can_be_called_again_and_the_node_can_come_back(run: Run) -> None:
    handler = run.handler()
    assert ranks(run.join(handler)) == [(0, 1)]
    assert leave(handler)
    assert leave(handler)
    assert ranks(run.join(handler)) == [(0, 1)]
    assert run.state.round == 1


def test_too_few_nodes_time_out_and_take_their_join_back(run: Run) -> None:
    handler = run.handler(2, 2, join=0.3)
    with pytest.raises(RendezvousTimeoutError, match=r"within 0\.3 s: 1 of at least 2 node\(s\)"):
        handler.next_rendezvous()
    assert not run.state.nodes


def test_the_loss_of_rank_0_before_it_told_its_address_leads_to_the_next_round(run: Run) -> None:
    lost = run.handler(1, 2, store=InMemoryStore())  # what it tells reaches nobody
    survivor = run.handler(1, 2)
    first, second = run.join(lost, survivor)
    assert first.result(PATIENCE).rank == 0
    assert leave(lost)
    assert ranks([second]) == [(0, 1)]
    assert run.state.round == 1


def test_who_waits_for_rank_0_in_vain_is_told(run: Run) -> None:
    silent = run.handler(2, 2, store=InMemoryStore())
    waiting = run.handler(2, 2, join=0.5)
    first, second = run.join(silent, waiting)
    assert first.result(PATIENCE).rank == 0
    with pytest.raises(RendezvousTimeoutError, match="Rank 0 of round 0"):
        second.result(PATIENCE)


def test_who_is_in_no_round_sees_how_many_join(run: Run) -> None:
    watcher, other = run.handler(2, 2), run.handler(2, 2)
    assert watcher.num_nodes_waiting() == 0
    run.join(other)
    eventually(lambda: watcher.num_nodes_waiting() == 1)
    watcher.set_closed()
    eventually(lambda: watcher.num_nodes_waiting() == 0)


# Making handlers.


def _parameters(**options: Any) -> RendezvousParameters:
    return RendezvousParameters("memory", "", "run", 3, 6, **options)


def test_options_become_settings() -> None:
    handler = create_handler(
        InMemoryStore(),
        Backend(MemorySpace("run")),
        _parameters(
            join_timeout="50",
            last_call_timeout="60",
            close_timeout=70,
            heartbeat_timeout="7",
            keep_alive_interval="2",
            keep_alive_max_attempt="4",
            cas_backoff_max_seconds="1.5",
            local_addr="fd00::1",
        ),
    )
    settings = handler.settings
    timeout = settings.timeout
    assert (timeout.join.seconds, timeout.last_call.seconds, timeout.close.seconds) == (50, 60, 70)
    assert timeout.heartbeat.seconds == 7
    assert (settings.run_id, settings.min_nodes, settings.max_nodes) == ("run", 3, 6)
    assert (settings.expiry, settings.cas_backoff_max_seconds) == (8, 1.5)
    assert (handler.get_backend(), handler.get_run_id(), handler.use_agent_store) == ("memory", "run", False)


def test_options_that_are_not_given_have_the_defaults_of_torch() -> None:
    settings = create_handler(InMemoryStore(), Backend(MemorySpace("run")), _parameters()).settings
    assert settings.timeout.join == timedelta(seconds=600)
    assert settings.keep_alive_interval == timedelta(seconds=5)
    assert settings.keep_alive_max_attempt == 3


@pytest.mark.parametrize(
    "option",
    [
        {"join_timeout": "0"},
        {"keep_alive_interval": "x"},
        {"keep_alive_interval": None},
        {"keep_alive_max_attempt": 0},
        {"cas_backoff_max_seconds": "many"},
        {"close_on_shutdown": "perhaps"},
        {"local_addr": "x" * 300},
    ],
)
def test_options_that_cannot_work_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option)).split("_")[0]):
        create_handler(InMemoryStore(), Backend(MemorySpace("run")), _parameters(**option))


def test_a_handler_made_from_a_backend_has_the_settings_that_were_given() -> None:
    timeout = RendezvousTimeout()
    handler = DynamicRendezvousHandler.from_backend(
        "run", InMemoryStore(), Backend(MemorySpace("run")), 1, 2, "10.0.0.1", timeout, 2, 5
    )
    assert handler.settings.timeout is timeout
    assert handler.settings.expiry == 10
    with pytest.raises(ValueError, match=r"minimum number of nodes \(0\)"):
        DynamicRendezvousHandler.from_backend("run", InMemoryStore(), Backend(MemorySpace("run")), 0, 2)


def test_a_node_is_known_by_the_name_of_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICJOB_POD_NAME", "demo-0-1")
    assert new_node("10.0.0.1").name == "demo-0-1"
    assert new_node("10.0.0.1").key != new_node("10.0.0.1").key


# Threads.


def _beat_thread(handler: DynamicRendezvousHandler) -> list[threading.Thread]:
    name = f"RendezvousKeepAliveTimer_{handler._node.local_id}"
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_heartbeats_begin_with_the_first_join_and_end_with_shutdown(run: Run) -> None:
    handler = run.handler()
    assert not _beat_thread(handler)
    handler.next_rendezvous()
    handler.next_rendezvous()
    assert len(_beat_thread(handler)) == 1
    handler.shutdown()
    assert not _beat_thread(handler)


def test_heartbeats_end_with_the_handler(run: Run) -> None:
    handler = run.handler()
    handler.next_rendezvous()
    [thread] = _beat_thread(handler)
    run.handlers.clear()
    del handler
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_heartbeats_end_when_the_join_fails(run: Run) -> None:
    handler = run.handler()
    handler.next_rendezvous()
    handler.set_closed()
    with pytest.raises(RendezvousClosedError):
        handler.next_rendezvous()
    assert not _beat_thread(handler)
