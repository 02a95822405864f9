"""The launcher for commands of any framework, run as a process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticjob.rendezvous.client import Round
from elasticjob.rendezvous.launch import count_processes, worker_environ
from elasticjob.rendezvous.protocol import Closed, Member
from tests.unit.rendezvous.worker.fake_server import FakeServer

Launch = Callable[..., "subprocess.Popen[bytes]"]

NOTE = 'echo "$RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR $ELASTICJOB_ROUND $ELASTICJOB_RESTART_COUNT" >> $NOTES; '
SLEEP = "exec sleep 60"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Where workers write down what they were told."""
    return tmp_path / "notes"


@pytest.fixture
def launch(server: FakeServer, tmp_path: Path, notes: Path) -> Iterator[Launch]:
    """Starts the launcher on a node with this name."""
    launchers: list[subprocess.Popen[bytes]] = []

    def start(
        name: str, script: str, *, nproc: int = 1, grace: float = 1.0, pid1: bool = False
    ) -> "subprocess.Popen[bytes]":
        token = tmp_path / f"token-{name}"
        token.write_text(name, encoding="ascii")
        environ = {
            **os.environ,
            "ELASTICJOB_ENDPOINT": str(server.endpoint),
            "ELASTICJOB_RUN_ID": "run-1",
            "ELASTICJOB_POD_IP": "127.0.0.1",
            "ELASTICJOB_TOKEN_FILE": str(token),
            "NOTES": str(notes),
        }
        command = [sys.executable, "-m", "elasticjob.rendezvous.launch", "--nproc", str(nproc), "--grace", str(grace)]
        unshared = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if pid1 else []
        process = subprocess.Popen([*unshared, *command, "--", "sh", "-c", script], env=environ)
        launchers.append(process)
        return process

    yield start
    for process in launchers:
        if process.poll() is None:
            process.kill()
        process.wait()


def _lines(notes: Path, count: int, timeout: float = 20.0) -> list[str]:
    deadline = time.monotonic() + timeout
    while True:
        found = notes.read_text(encoding="ascii").splitlines() if notes.exists() else []
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """Whether a process exists and is not just waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_get_their_place_and_the_launcher_ends_with_them(
    server: FakeServer, launch: Launch, notes: Path
) -> None:
    server.update(wanted=2)
    nodes = [launch("a", NOTE, nproc=2), launch("b", NOTE, nproc=2)]
    assert [node.wait(20) for node in nodes] == [0, 0]
    assert sorted(_lines(notes, 4)) == [
        "0 4 0 127.0.0.1 1 0",
        "1 4 0 127.0.0.1 1 0",
        "2 4 1 127.0.0.1 1 0",
        "3 4 1 127.0.0.1 1 0",
    ]
    assert [said["outcome"] for said in server.calls_to("leave")] == ["succeeded", "succeeded"]


def test_a_failed_worker_is_reported_and_restarted_in_a_new_round(
    server: FakeServer, launch: Launch, notes: Path
) -> None:
    node = launch("a", NOTE + "test $ELASTICJOB_RESTART_COUNT -gt 0 || exit 9")
    assert node.wait(20) == 0
    assert [line.split()[-2:] for line in _lines(notes, 2)] == [["1", "0"], ["2", "1"]]
    reports = [said["failure"] for said in server.calls_to("join")]
    assert reports[0] is None
    assert reports[1]["exitCode"] == 9


def test_the_exit_code_of_the_worker_is_that_of_the_launcher_once_the_run_is_closed(
    server: FakeServer, launch: Launch
) -> None:
    node = launch("a", "kill -9 $$")
    server.wait_for("join", 1)
    server.update(closed=Closed(reason="Failed", message="3 of 3 restarts are spent"))
    assert node.wait(20) == 137
    assert server.calls_to("leave")[-1]["outcome"] == "failed"


def test_a_node_that_comes_after_the_run_has_succeeded_ends_well(server: FakeServer, launch: Launch) -> None:
    server.update(closed=Closed(reason="Succeeded", message="all nodes are done"))
    assert launch("late", SLEEP).wait(20) == 0


def test_a_node_that_comes_after_the_run_has_failed_does_not(server: FakeServer, launch: Launch) -> None:
    server.update(closed=Closed(reason="Failed", message="no"))
    assert launch("late", SLEEP).wait(20) == 1


def test_a_change_of_membership_starts_the_workers_anew_without_a_failure(
    server: FakeServer, launch: Launch, notes: Path
) -> None:
    launch("b", NOTE + SLEEP)
    assert _lines(notes, 1) == ["0 1 0 127.0.0.1 1 0"]
    server.update(wanted=2)
    launch("a", NOTE + SLEEP)
    assert sorted(_lines(notes, 3)[1:]) == ["0 2 0 127.0.0.1 2 0", "1 2 1 127.0.0.1 2 1"]
    assert [said["failure"] for said in server.calls_to("join")] == [None, None, None]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_node_leaves(
    server: FakeServer, launch: Launch, notes: Path, number: signal.Signals
) -> None:
    trap = f"trap 'echo got it >> $NOTES; exit 0' {number.name.removeprefix('SIG')}; "
    node = launch("a", NOTE + trap + "while :; do sleep 0.05; done")
    _lines(notes, 1)
    time.sleep(0.2)
    node.send_signal(number)
    assert node.wait(20) == 128 + number
    assert _lines(notes, 2)[-1] == "got it"
    assert [said["outcome"] for said in server.calls_to("leave")] == ["left"]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_for_the_workers_reaches_each_of_them_and_ends_nothing(
    server: FakeServer, launch: Launch, notes: Path, number: signal.Signals
) -> None:
    loader = "sleep 60 & echo loader $! >> $NOTES; "
    trap = f"trap 'echo got it >> $NOTES' {number.name.removeprefix('SIG')}; "
    node = launch("a", loader + trap + NOTE + "while :; do sleep 0.05; done", nproc=2)
    loaders = [int(line.split()[1]) for line in _lines(notes, 4) if line.startswith("loader")]
    for count in (6, 8):
        node.send_signal(number)
        assert _lines(notes, count)[count - 2 :] == ["got it", "got it"]
    assert all(_runs(pid) for pid in loaders)
    node.terminate()
    assert node.wait(20) == 128 + signal.SIGTERM
    assert len(server.calls_to("join")) == 1


def test_a_signal_for_the_workers_is_dropped_while_there_are_none(
    server: FakeServer, launch: Launch, notes: Path
) -> None:
    server.update(wanted=2)
    node = launch("a", NOTE)
    server.wait_for("join", 1)
    node.send_signal(signal.SIGUSR1)
    launch("b", NOTE)
    assert node.wait(20) == 0


def test_a_worker_that_ignores_the_signal_is_killed_after_the_grace(
    server: FakeServer, launch: Launch, notes: Path
) -> None:
    node = launch("a", "trap '' TERM; " + NOTE + "while :; do sleep 0.05; done", grace=0.3)
    _lines(notes, 1)
    started = time.monotonic()
    node.terminate()
    assert node.wait(20) == 143
    assert time.monotonic() - started < 10


def test_a_signal_ends_a_launcher_that_waits_for_its_round(server: FakeServer, launch: Launch) -> None:
    server.update(wanted=2)
    node = launch("a", SLEEP)
    server.wait_for("join", 1)
    node.terminate()
    assert node.wait(5) == 143


def test_what_a_failed_worker_has_started_does_not_outlive_it(server: FakeServer, launch: Launch, notes: Path) -> None:
    server.update(wanted=1)
    node = launch("a", "test $ELASTICJOB_RESTART_COUNT -gt 0 && exit 0; sleep 60 & echo $! >> $NOTES; exit 3")
    (orphan,) = _lines(notes, 1)
    assert node.wait(20) == 0
    assert not _runs(int(orphan))


def test_a_command_that_cannot_be_started_is_named(server: FakeServer, capfd: pytest.CaptureFixture[str]) -> None:
    environ = {**os.environ, "ELASTICJOB_ENDPOINT": str(server.endpoint), "ELASTICJOB_RUN_ID": "run-1"}
    command = [sys.executable, "-m", "elasticjob.rendezvous.launch", "--", "/no/such/command"]
    assert subprocess.run(command, env=environ, timeout=20).returncode == 127
    assert "/no/such/command" in capfd.readouterr().err
    assert server.calls_to("leave")[-1]["exitCode"] == 127


def test_a_bad_environment_is_a_usage_error(capfd: pytest.CaptureFixture[str]) -> None:
    environ = {**os.environ, "ELASTICJOB_ENDPOINT": "host:99999"}
    command = [sys.executable, "-m", "elasticjob.rendezvous.launch", "--", "true"]
    assert subprocess.run(command, env=environ, timeout=20).returncode == 2
    assert "ELASTICJOB_ENDPOINT" in capfd.readouterr().err


def test_process_1_of_a_container_reaps_what_it_inherits(server: FakeServer, launch: Launch, notes: Path) -> None:
    leave_orphans = "for n in 1 2 3; do (sh -c 'sleep 0.1 & exit 0'); done; sleep 0.5; "
    count_zombies = "cat /proc/[0-9]*/status | grep -c '^State:.Z' >> $NOTES; exit 0"
    node = launch("a", leave_orphans + count_zombies, pid1=True)
    assert node.wait(20) == 0
    assert server.calls_to("leave")[-1]["outcome"] == "succeeded"
    assert _lines(notes, 1) == ["0"]


def test_ranks_count_the_workers_of_all_nodes_before() -> None:
    members = tuple(Member(rank=rank, index=rank, pod=f"p{rank}", address="10.0.0.1") for rank in range(3))
    environ = worker_environ(Round(round=5, rank=2, members=members), ("fd00::1", 1234), 1, 4, 6)
    assert environ == {
        "RANK": "9",
        "WORLD_SIZE": "12",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
        "MASTER_ADDR": "fd00::1",
        "MASTER_PORT": "1234",
        "ELASTICJOB_ROUND": "5",
        "ELASTICJOB_RESTART_COUNT": "6",
    }


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_a_number_of_processes_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="number of processes"):
        count_processes(text)


def test_processes_can_follow_the_number_of_cpus() -> None:
    assert count_processes("cpu") == len(os.sched_getaffinity(0))
    assert count_processes("3") == 3
