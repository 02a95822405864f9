"""The launcher for any framework on the operator's rendezvous."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticjob.rendezvous.orders import CloseReason, RunState
from tests.cluster.processes import ENDS_WITH_STARTER
from tests.integration.rendezvous.hosted_operator import RUN, HostedOperator
from tests.integration.rendezvous.torchrun_agents import address

pytestmark = pytest.mark.timeout(300, func_only=True)

Launch = Callable[[int, str], "subprocess.Popen[bytes]"]

WORK = 'echo "$ELASTICJOB_ROUND $RANK $WORLD_SIZE $MASTER_ADDR" >> $NOTES; '
LONG = WORK + "while test ! -e $NOTES.end; do sleep 0.05; done"


@pytest.fixture
def operator() -> Iterator[HostedOperator]:
    with HostedOperator(max_worker_failures=1) as operator:
        yield operator


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def launch(operator: HostedOperator, notes: Path) -> Iterator[Launch]:
    started: list[subprocess.Popen[bytes]] = []

    def start(index: int, script: str) -> "subprocess.Popen[bytes]":
        token = notes.with_name(f"token-{index}")
        token.write_text(f"uid-{index}", encoding="ascii")
        environ = {
            **os.environ,
            "ELASTICJOB_ENDPOINT": f"http://{operator.authority}",
            "ELASTICJOB_RUN_ID": RUN,
            "ELASTICJOB_POD_IP": address(index),
            "ELASTICJOB_TOKEN_FILE": str(token),
            "NOTES": str(notes),
        }
        command = [sys.executable, "-m", "elasticjob.rendezvous.launch", "--", "sh", "-c", script]
        process = subprocess.Popen([*ENDS_WITH_STARTER, *command], env=environ)
        started.append(process)
        return process

    yield start
    notes.with_name("notes.end").touch()
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def _wait_for(notes: Path, *lines: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        found = notes.read_text(encoding="ascii").splitlines() if notes.exists() else []
        if set(lines) <= set(found):
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_the_survivors_of_a_killed_node_re_form_and_finish(
    operator: HostedOperator, launch: Launch, notes: Path
) -> None:
    operator.expect(0, 1)
    zero, one = launch(0, LONG), launch(1, LONG)
    _wait_for(notes, f"1 0 2 {address(0)}", f"1 1 2 {address(0)}")
    zero.kill()
    operator.expect(1)
    _wait_for(notes, f"2 0 1 {address(1)}")
    notes.with_name("notes.end").touch()
    assert one.wait(60) == 0
    assert operator.wait_for(lambda view: True).worker_failures == 0


def test_a_spent_budget_ends_the_launchers_with_the_code_of_the_worker(
    operator: HostedOperator, launch: Launch
) -> None:
    operator.expect(0)
    node = launch(0, WORK + "exit 9")
    view = operator.wait_for(lambda view: view.failed)
    operator.close(CloseReason.FAILED, view.failed)
    assert node.wait(60) == 9


def test_an_operator_that_restarts_does_not_disturb_the_workers(
    operator: HostedOperator, launch: Launch, notes: Path
) -> None:
    operator.expect(0)
    node = launch(0, LONG)
    _wait_for(notes, f"1 0 1 {address(0)}")
    operator.stop()
    time.sleep(4.0)  # longer than it takes for a silent node to be lost
    operator.start()
    view = operator.wait_for(lambda view: view.state is RunState.FORMED and not view.held)
    assert view.round == 1
    notes.with_name("notes.end").touch()
    assert node.wait(60) == 0
    assert len(notes.read_text(encoding="ascii").splitlines()) == 1
