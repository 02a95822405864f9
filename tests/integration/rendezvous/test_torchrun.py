"""Unmodified torchrun on the operator's rendezvous: what breaks jobs elsewhere does not here.

The version of torch is the newest; set ELASTICJOB_TEST_TORCH to try another (2.6.0 is the oldest that works).
"""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from elasticjob.rendezvous.client import HostedRendezvousClient
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.inject import inject
from elasticjob.rendezvous.orders import CloseReason, RunState
from elasticjob.rendezvous.protocol import LeaveOutcome
from tests.cluster.torch_packages import torch_site_packages
from tests.integration.rendezvous.hosted_operator import RUN, HostedOperator
from tests.integration.rendezvous.torchrun_agents import Agents, Note, address

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("library")
    inject(directory)
    return directory


@pytest.fixture(scope="module")
def torch() -> Path:
    return torch_site_packages(os.environ.get("ELASTICJOB_TEST_TORCH"))


@pytest.fixture
def operator() -> Iterator[HostedOperator]:
    with HostedOperator(max_worker_failures=1) as operator:
        yield operator


@pytest.fixture
def agents(operator: HostedOperator, library: Path, torch: Path, tmp_path: Path) -> Iterator[Agents]:
    agents = Agents(operator, library=library, torch=torch, directory=tmp_path)
    yield agents
    agents.stop()


def _ranks(notes: Sequence[Note]) -> list[tuple[str, str]]:
    return [(note["RANK"], note["ELASTICJOB_POD_IP"]) for note in notes]


def _masters(notes: Sequence[Note]) -> set[tuple[str, str]]:
    return {(note["MASTER_ADDR"], note["MASTER_PORT"]) for note in notes}


def test_ranks_follow_the_node_indexes_and_every_agent_ends_with_0(operator: HostedOperator, agents: Agents) -> None:
    operator.expect(0, 1)
    running = [agents.start(1, nproc=2), agents.start(0, nproc=2)]
    notes = agents.wait_for_round(4)
    assert _ranks(notes) == [("0", address(0)), ("1", address(0)), ("2", address(1)), ("3", address(1))]
    assert {note["sum"] for note in notes} == {4}
    assert {master for master, _ in _masters(notes)} == {address(0)}
    agents.end()
    assert [agent.wait() for agent in running] == [0, 0]
    operator.close(CloseReason.SUCCEEDED, "all nodes have succeeded")
    # A pod that was scheduled too late.
    assert agents.start(1).wait() == 0


def test_the_survivors_go_on_without_a_killed_rank_0_and_with_its_replacement(
    operator: HostedOperator, agents: Agents
) -> None:
    operator.expect(0, 1)
    zero, one = agents.start(0), agents.start(1)
    first = agents.wait_for_round(2)
    zero.kill()
    operator.expect(1)
    alone = agents.wait_for_round(1, after=1)
    assert _ranks(alone) == [("0", address(1))]
    # The node comes back and is rank 0 again: it sorts below the rank 0 that is there.
    operator.expect(0, 1)
    back = agents.start(0, uid=operator.replace_pod(0, 1))
    again = agents.wait_for_round(2, after=int(alone[0]["ELASTICJOB_ROUND"]))
    assert _ranks(again) == [("0", address(0)), ("1", address(1))]
    assert len(_masters(again)) == 1
    assert len(_masters([*first, *alone, *again])) == 3
    agents.end()
    assert [agent.wait() for agent in (one, back)] == [0, 0]
    assert operator.wait_for(lambda view: True).worker_failures == 0


def test_failed_workers_restart_in_place_until_the_budget_is_spent(operator: HostedOperator, agents: Agents) -> None:
    operator.expect(0, 1)
    running = [agents.start(0), agents.start(1)]
    first = agents.wait_for_round(2)
    agents.crash(1)
    second = agents.wait_for_round(2, after=1)
    assert _masters(first).isdisjoint(_masters(second))
    assert operator.wait_for(lambda view: view.worker_failures == 1).state is RunState.FORMED
    agents.crash(0)
    view = operator.wait_for(lambda view: view.failed)
    operator.close(CloseReason.FAILED, view.failed)
    assert [agent.wait() for agent in running] == [1, 1]
    assert all("RendezvousClosedError" in agent.output.read_text() for agent in running)


def test_an_operator_that_restarts_does_not_disturb_training(operator: HostedOperator, agents: Agents) -> None:
    operator.expect(0, 1)
    running = [agents.start(0), agents.start(1)]
    before = agents.wait_for_round(2)
    operator.stop()
    # Longer than it takes for a node without heartbeats to be lost.
    assert operator.port
    with pytest.raises(AssertionError):
        operator.wait_for(lambda view: True, timeout=5.0)
    operator.start()
    view = operator.wait_for(lambda view: view.state is RunState.FORMED and not view.held)
    assert (view.round, view.epoch, [node.pod_uid for node in view.participants]) == (1, 2, ["uid-0", "uid-1"])
    assert agents.notes() == before
    # And what is to change still does.
    operator.expect(0, 1, 2)
    running.append(agents.start(2))
    assert len(agents.wait_for_round(3, after=1)) == 3
    agents.end()
    assert [agent.wait() for agent in running] == [0, 0, 0]


def test_an_agent_that_is_told_to_go_takes_nobody_with_it(operator: HostedOperator, agents: Agents) -> None:
    operator.expect(0, 1)
    zero, one = agents.start(0), agents.start(1)
    agents.wait_for_round(2)
    one.process.send_signal(signal.SIGTERM)
    operator.expect(0)
    assert len(agents.wait_for_round(1, after=1)) == 1
    one.wait()
    agents.end()
    assert zero.wait() == 0


def test_a_pod_that_was_given_up_ends_without_a_place(operator: HostedOperator, agents: Agents) -> None:
    operator.expect(0, 1)
    one = agents.start(1)
    agents.start(0)
    agents.wait_for_round(2)
    back = agents.start(1, uid=operator.replace_pod(1, 1))
    agents.wait_for_round(2, after=1)
    assert one.wait() == 1
    assert "given up" in one.output.read_text()
    agents.end()
    assert back.wait() == 0


@pytest.mark.parametrize("index", [0, 2])
def test_a_node_lost_between_round_and_store_does_not_hang_the_others(
    operator: HostedOperator, agents: Agents, tmp_path: Path, index: int
) -> None:
    others = [other for other in (0, 1, 2) if other != index]
    operator.expect(0, 1, 2)
    token = tmp_path / "token"
    token.write_text(f"uid-{index}", encoding="ascii")
    lost = HostedRendezvousClient(
        endpoint=ServerEndpoint.parse(operator.authority), run_id=RUN, address=address(index), token_file=token
    )
    running = [agents.start(other) for other in others]
    assert lost.join().world_size == 3
    lost.leave(LeaveOutcome.LEFT)
    operator.expect(*others)
    notes = agents.wait_for_round(2, after=1)
    assert _ranks(notes) == [(str(rank), address(other)) for rank, other in enumerate(others)]
    agents.end()
    assert [agent.wait() for agent in running] == [0, 0]


def test_an_agent_that_waits_for_its_round_can_be_ended(operator: HostedOperator, agents: Agents) -> None:
    operator.expect(0, 1)
    zero = agents.start(0)
    operator.wait_for(lambda view: view.waiting)
    zero.process.terminate()
    assert zero.wait(20) == 128 + signal.SIGTERM
