"""Nodes that agree among themselves over each backend, made by name as a launcher does."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from elasticjob.rendezvous import RendezvousHandler, RendezvousParameters, rendezvous_handler_registry
from tests.integration.rendezvous.harness import Harness

NODES = 3


def make_handler(harness: Harness, run_id: str, number: int) -> RendezvousHandler:
    options: dict[str, Any] = {"join_timeout": "50", "last_call_timeout": "1", **harness.options}
    params = RendezvousParameters(harness.name, harness.endpoint, run_id, NODES, NODES, f"10.0.0.{number}", **options)
    return rendezvous_handler_registry.create_handler(params)


def test_nodes_meet_over_every_backend_and_share_a_store(harness: Harness) -> None:
    handlers = [make_handler(harness, "team/exp 1", number) for number in range(NODES)]
    try:
        with ThreadPoolExecutor(NODES) as pool:
            infos = list(pool.map(lambda handler: handler.next_rendezvous(), handlers))
        assert sorted(info.rank for info in infos) == list(range(NODES))
        assert {info.world_size for info in infos} == {NODES}
        meeting_points = {
            (info.bootstrap_store_info.master_addr, info.bootstrap_store_info.master_port)
            for info in infos
            if info.bootstrap_store_info
        }
        assert len(meeting_points) == 1
        infos[0].store.set("key", "value")
        assert infos[-1].store.get("key") == b"value"
        assert [handler.num_nodes_waiting() for handler in handlers] == [0] * NODES
    finally:
        for handler in handlers:
            handler.shutdown()


def test_a_run_of_another_name_is_not_met(harness: Harness) -> None:
    one, other = make_handler(harness, "run", 1), make_handler(harness, "run/1", 2)
    one.set_closed()
    assert one.is_closed()
    assert not other.is_closed()
