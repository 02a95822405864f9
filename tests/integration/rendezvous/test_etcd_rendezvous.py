"""The legacy etcd rendezvous on a real etcd 3.4, with times to live of a few seconds."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from elasticjob.rendezvous import etcd_rendezvous, etcd_rendezvous_node
from elasticjob.rendezvous.backends.etcd_v2_keys import connect
from elasticjob.rendezvous.backends.options import EtcdOptions
from elasticjob.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousStateError,
    RendezvousTimeoutError,
)
from elasticjob.rendezvous.etcd_rendezvous import EtcdRendezvousHandler, create_rdzv_handler
from elasticjob.rendezvous.handler import RendezvousHandler, RendezvousInfo
from elasticjob.rendezvous.parameters import RendezvousParameters
from tests.cluster.etcd_server import EtcdServer
from tests.integration.rendezvous.harness import EtcdV2Harness
from tests.integration.rendezvous.servers import SilentServer


@pytest.fixture(autouse=True)
def short_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_rendezvous_node, "KEEP_ALIVE_TTL", 2)
    monkeypatch.setattr(etcd_rendezvous_node, "JOINABLE_TTL", 3)
    monkeypatch.setattr(etcd_rendezvous_node, "FROZEN_TTL", 3)


class Nodes:
    """The nodes of one run, each with a thread of its own while it waits."""

    def __init__(self, harness: EtcdV2Harness) -> None:
        self.harness = harness
        self.pool = ThreadPoolExecutor(16)
        self.handlers: list[EtcdRendezvousHandler] = []

    def make(self, minimum: int, maximum: int, run_id: str = "run", **options: object) -> EtcdRendezvousHandler:
        settings = {"timeout": 30, "last_call_timeout": 1, "etcd_prefix": self.harness.prefix, "read_timeout": 5}
        params = RendezvousParameters(
            "etcd", self.harness.endpoint, run_id, minimum, maximum, "127.0.0.1", **{**settings, **options}
        )
        handler = create_rdzv_handler(params)
        assert isinstance(handler, EtcdRendezvousHandler)
        self.handlers.append(handler)
        return handler

    def start(self, *handlers: RendezvousHandler) -> "list[Future[RendezvousInfo]]":
        return [self.pool.submit(handler.next_rendezvous) for handler in handlers]

    def meet(self, *handlers: RendezvousHandler) -> list[RendezvousInfo]:
        return [future.result(30) for future in self.start(*handlers)]

    def close(self) -> None:
        for handler in self.handlers:
            handler.shutdown()
        self.pool.shutdown()


@pytest.fixture
def nodes(etcd_v2_harness: EtcdV2Harness) -> Iterator[Nodes]:
    made = Nodes(etcd_v2_harness)
    yield made
    made.close()


def die(handler: EtcdRendezvousHandler) -> None:
    """Stop a node as a crash does: nothing is said, the keep-alive ends."""
    keep_alive = handler._rdzv_impl._rank_keep_alive
    assert keep_alive is not None
    keep_alive.stop()


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_one_node_meets_itself(nodes: Nodes) -> None:
    handler = nodes.make(1, 1)
    (info,) = nodes.meet(handler)
    assert (info.rank, info.world_size) == (0, 1)
    assert info.bootstrap_store_info is not None
    assert info.bootstrap_store_info.master_addr == "127.0.0.1"
    assert not handler.use_agent_store
    assert handler.num_nodes_waiting() == 0


def test_all_nodes_get_each_rank_once_and_one_store(nodes: Nodes) -> None:
    infos = nodes.meet(*[nodes.make(6, 6) for _ in range(6)])
    assert sorted(info.rank for info in infos) == list(range(6))
    assert {info.world_size for info in infos} == {6}
    infos[0].store.set("key", "value")
    assert infos[5].store.get("key") == b"value"
    ports = {info.bootstrap_store_info.master_port for info in infos if info.bootstrap_store_info}
    assert len(ports) == 1


def test_a_round_waits_through_the_last_call_and_takes_who_comes(nodes: Nodes) -> None:
    first = nodes.start(nodes.make(2, 4, last_call_timeout=3), nodes.make(2, 4, last_call_timeout=3))
    threading.Event().wait(1)
    (late,) = nodes.start(nodes.make(2, 4, last_call_timeout=3))
    assert {future.result(20).world_size for future in [*first, late]} == {3}


def test_a_lost_node_is_noticed_though_nobody_waits(nodes: Nodes) -> None:
    first, second = nodes.make(1, 2), nodes.make(1, 2)
    nodes.meet(first, second)
    assert first.num_nodes_waiting() == 0
    die(second)
    assert eventually(lambda: first.num_nodes_waiting() > 0)
    (info,) = nodes.meet(first)
    assert (info.rank, info.world_size) == (0, 1)


def test_a_node_that_waits_notices_a_lost_member_too(nodes: Nodes) -> None:
    member = nodes.make(1, 1)
    nodes.meet(member)
    (waiting,) = nodes.start(nodes.make(1, 1))
    die(member)
    assert waiting.result(15).world_size == 1


def test_a_node_that_waits_is_counted_and_admitted(nodes: Nodes) -> None:
    first, second = nodes.make(1, 2), nodes.make(1, 2)
    nodes.meet(first)
    (waiting,) = nodes.start(second)
    assert eventually(lambda: first.num_nodes_waiting() == 1)
    (again,) = nodes.start(first)
    assert again.result(15).world_size == waiting.result(15).world_size == 2


def test_a_spare_beyond_the_maximum_is_not_counted_until_a_place_is_free(nodes: Nodes) -> None:
    first, second, spare = (nodes.make(1, 2) for _ in range(3))
    nodes.meet(first, second)
    (waiting,) = nodes.start(spare)
    threading.Event().wait(1)
    assert first.num_nodes_waiting() == 0
    assert second.shutdown()
    assert eventually(lambda: first.num_nodes_waiting() > 0)
    (again,) = nodes.start(first)
    assert again.result(15).world_size == waiting.result(15).world_size == 2


def test_a_node_that_stops_waiting_is_no_longer_counted(nodes: Nodes) -> None:
    member = nodes.make(1, 2)
    nodes.meet(member)
    (waiting,) = nodes.start(nodes.make(1, 2, timeout=2))
    assert eventually(lambda: member.num_nodes_waiting() == 1)
    with pytest.raises(RendezvousTimeoutError, match="within 2 s"):
        waiting.result(15)
    assert member.num_nodes_waiting() == 0


def test_leaving_is_not_closing(nodes: Nodes) -> None:
    first, second = nodes.make(1, 2), nodes.make(1, 2)
    nodes.meet(first, second)
    assert second.shutdown()
    assert not first.is_closed()
    assert first.num_nodes_waiting() > 0
    assert nodes.meet(first)[0].world_size == 1


def test_a_member_that_comes_back_makes_the_others_come_too(nodes: Nodes) -> None:
    first, second = nodes.make(2, 2), nodes.make(2, 2)
    nodes.meet(first, second)
    (back,) = nodes.start(first)
    assert eventually(lambda: second.num_nodes_waiting() > 0, 2)
    (other,) = nodes.start(second)
    assert {back.result(10).rank, other.result(10).rank} == {0, 1}


def test_each_round_has_a_store_of_its_own(nodes: Nodes) -> None:
    handler = nodes.make(1, 1)
    nodes.meet(handler)[0].store.set("key", "value")
    assert not nodes.meet(handler)[0].store.check(["key"])


def test_a_closed_run_lets_nobody_in(nodes: Nodes) -> None:
    member = nodes.make(1, 2)
    nodes.meet(member)
    (waiting,) = nodes.start(nodes.make(1, 2))
    member.set_closed()
    assert member.is_closed()
    with pytest.raises(RendezvousClosedError, match="'run'"):
        waiting.result(10)
    with pytest.raises(RendezvousClosedError):
        nodes.make(1, 2).next_rendezvous()
    assert member.num_nodes_waiting() == 0


def test_a_run_can_be_closed_before_anybody_came(nodes: Nodes) -> None:
    handler = nodes.make(1, 1)
    assert not handler.is_closed()
    handler.set_closed()
    handler.set_closed()
    assert handler.is_closed()


def test_too_few_nodes_are_a_time_out_and_leave_no_ghost_behind(nodes: Nodes) -> None:
    with pytest.raises(RendezvousTimeoutError):
        nodes.make(2, 2, timeout=1).next_rendezvous()
    infos = nodes.meet(nodes.make(2, 2), nodes.make(2, 2))
    assert {info.world_size for info in infos} == {2}


def test_a_node_that_dies_while_it_joins_is_left_out(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    ghost = nodes.make(2, 2)
    monkeypatch.setattr(ghost._rdzv_impl, "_await_frozen", lambda version: (_ for _ in ()).throw(SystemExit))
    with pytest.raises(SystemExit):
        ghost.next_rendezvous()
    infos = nodes.meet(nodes.make(2, 2), nodes.make(2, 2))
    assert {info.world_size for info in infos} == {2}


def test_runs_of_similar_names_do_not_meet(nodes: Nodes) -> None:
    handlers = [nodes.make(1, 2, run_id) for run_id in ("team", "team/1", "../team", "team/rdzv")]
    assert [info.world_size for info in nodes.meet(*handlers)] == [1, 1, 1, 1]


def test_a_refresher_outlives_a_server_that_was_away(nodes: Nodes) -> None:
    handler = nodes.make(1, 1)
    nodes.meet(handler)
    keep_alive = handler._rdzv_impl._rank_keep_alive
    assert keep_alive is not None
    nodes.harness.server.stop()
    try:
        threading.Event().wait(1.5)
        assert handler.num_nodes_waiting() == 0
    finally:
        nodes.harness.server.start()
    assert keep_alive.alive
    threading.Event().wait(2.5)
    assert handler.num_nodes_waiting() == 0


def test_a_node_that_comes_while_the_server_is_away_gets_in_when_it_is_back(nodes: Nodes) -> None:
    nodes.harness.server.stop()
    try:
        (coming,) = nodes.start(nodes.make(1, 1))
        threading.Event().wait(1)
        assert not coming.done()
    finally:
        nodes.harness.server.start()
    assert coming.result(15).world_size == 1


def test_a_server_that_never_comes_is_a_connection_error_when_the_time_is_over(nodes: Nodes) -> None:
    handler = nodes.make(1, 1, timeout=2, protocol="http")
    handler._rdzv_impl._keys.client = connect(EtcdOptions(host="127.0.0.1", port=1, read_timeout=1))
    started = time.monotonic()
    with pytest.raises(RendezvousConnectionError, match=r"http://127\.0\.0\.1:1"):
        handler.next_rendezvous()
    assert 2 <= time.monotonic() - started < 5
    assert handler.num_nodes_waiting() == 0
    assert handler.shutdown()


@pytest.mark.parametrize("value", ["", "!!!!", "[]", "{}", '{"status": "odd"}', '{"status": "final", "version": "1"}'])
def test_a_damaged_round_is_reported_and_not_overwritten(nodes: Nodes, value: str) -> None:
    key = f"{nodes.harness.prefix}/run_run/rdzv/active_version"
    client = connect(nodes.harness.etcd_options)
    client.write(key, value)
    handler = nodes.make(1, 1)
    for call in (handler.next_rendezvous, handler.is_closed, handler.num_nodes_waiting, handler.set_closed):
        with pytest.raises(RendezvousStateError, match="active_version"):
            call()
    assert client.read(key).value == value


def test_a_handler_is_made_from_a_url(nodes: Nodes, etcd_v2: EtcdServer) -> None:
    handler = create_rdzv_handler(
        f"etcd://{etcd_v2.endpoint}/job%2F1?min_workers=1&max_workers=3&last_call_timeout=1"
        f"&etcd_prefix={nodes.harness.prefix}"
    )
    try:
        assert handler.get_run_id() == "job/1"
        assert handler.get_backend() == "etcd"
        assert handler.next_rendezvous().world_size == 1
    finally:
        handler.shutdown()


def test_a_server_without_the_v2_api_is_named(nodes: Nodes, etcd_v3: EtcdServer) -> None:
    params = RendezvousParameters("etcd", etcd_v3.endpoint, "run", 1, 1, timeout=1)
    with pytest.raises(RendezvousConnectionError, match="does not offer the v2 API"):
        create_rdzv_handler(params).next_rendezvous()


def test_shutting_down_does_not_wait_for_a_server_that_hangs(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_rendezvous, "CLOSE_TIMEOUT", 0.5)
    handler = nodes.make(1, 1, read_timeout=5)
    nodes.meet(handler)
    with SilentServer() as server:
        host, port = server.endpoint.split(":")
        handler._rdzv_impl._keys.client = connect(EtcdOptions(host=host, port=int(port), read_timeout=2))
        started = time.monotonic()
        assert not handler.shutdown()
        assert time.monotonic() - started < 1.5


def test_a_node_that_nobody_refers_to_ends_its_threads(nodes: Nodes) -> None:
    handler = nodes.make(1, 1)
    nodes.meet(handler)
    kept = (handler._rdzv_impl._rank_keep_alive, handler._rdzv_impl._run_keep_alive)
    threads = [keep_alive._thread for keep_alive in kept if keep_alive and keep_alive._thread]
    assert len(threads) == 2
    del kept
    nodes.handlers.clear()
    del handler
    gc.collect()
    assert eventually(lambda: not any(thread.is_alive() for thread in threads))
