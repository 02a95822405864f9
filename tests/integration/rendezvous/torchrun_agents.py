"""Real, unmodified torchrun agents on loopback addresses, one for each node.

Nothing but `PYTHONPATH` and the variables that the operator sets ties them to elasticjob: the handler is found in a
directory filled by `elasticjob.rendezvous.inject`.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.image_sets import image_python
from tests.cluster.processes import ENDS_WITH_STARTER
from tests.integration.rendezvous.hosted_operator import RUN, HostedOperator

TRAINING = Path(__file__).with_name("training.py")
TIMEOUT = 150.0

Note = Mapping[str, Any]


@dataclass(frozen=True)
class Agent:
    """One torchrun, which leads a session of its own."""

    process: "subprocess.Popen[bytes]"
    output: Path

    def kill(self) -> None:
        """Kill the agent and its workers, as if the node were gone."""
        workers = _children(self.process.pid)
        self.process.kill()
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        self.process.wait()

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Exit code of the agent, once it ends."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the agent does not end:\n{self.output.read_text()}") from None


class Agents:
    """Starts agents of one job and reads what its training processes wrote down."""

    def __init__(self, operator: HostedOperator, *, library: Path, torch: Path, directory: Path) -> None:
        self._operator = operator
        self._path = os.pathsep.join([str(library), str(torch)])
        self._directory = directory
        self._notes = directory / "notes"
        self.control = directory / "control"
        self.control.mkdir()
        self._started: list[Agent] = []

    def start(self, index: int, *, uid: str = "", nproc: int = 1) -> Agent:
        """Start the agent of a node. Its address follows its index, in the opposite order."""
        uid = uid or f"uid-{index}"
        token = self._directory / f"token-{uid}"
        token.write_text(uid, encoding="ascii")
        output = self._directory / f"output-{len(self._started)}-{uid}"
        program = [image_python(), "-m", "torch.distributed.run", str(TRAINING), str(self._notes), str(self.control)]
        environ = {**os.environ, **self._environment(index, token, nproc)}
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*ENDS_WITH_STARTER, *program],
                env=environ,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        agent = Agent(process, output)
        self._started.append(agent)
        return agent

    def end(self) -> None:
        """Let the training processes finish."""
        (self.control / "end").touch()

    def crash(self, index: int) -> None:
        """Make the worker of a node fail with exit code 7."""
        (self.control / f"crash-{address(index)}").touch()

    def notes(self, event: str = "start", *, round_number: int | None = None) -> list[Note]:
        """What training processes wrote down, by rank within a round."""
        lines = self._notes.read_text(encoding="utf-8").splitlines() if self._notes.exists() else []
        found = [json.loads(line) for line in lines]
        kept = [
            note for note in found if note["event"] == event and round_number in (None, int(note["ELASTICJOB_ROUND"]))
        ]
        return sorted(kept, key=lambda note: (int(note["ELASTICJOB_ROUND"]), int(note["RANK"])))

    def wait_for_round(self, world_size: int, *, after: int = 0) -> list[Note]:
        """Wait until all processes of a round of this size, newer than `after`, have met and started to train."""

        def formed() -> list[Note]:
            for number in sorted({int(note["ELASTICJOB_ROUND"]) for note in self.notes()}, reverse=True):
                notes = self.notes(round_number=number)
                if number > after and len(notes) == world_size:
                    return notes
            return []

        return self._eventually(formed)

    def stop(self) -> None:
        """Leave nothing behind."""
        for agent in self._started:
            if agent.process.poll() is None:
                agent.kill()

    def _eventually(self, find: Callable[[], list[Note]]) -> list[Note]:
        deadline = time.monotonic() + TIMEOUT
        while not (found := find()):
            assert time.monotonic() < deadline, self._report()
            time.sleep(0.05)
        return found

    def _report(self) -> str:
        outputs = [f"--- {agent.output.name}\n{agent.output.read_text()}" for agent in self._started]
        return "\n".join([*(str(note) for note in self.notes()), *outputs])

    def _environment(self, index: int, token: Path, nproc: int) -> dict[str, str]:
        return {
            "PYTHONPATH": self._path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "PET_RDZV_BACKEND": "elasticjob",
            "PET_RDZV_ENDPOINT": self._operator.authority,
            "PET_RDZV_ID": RUN,
            "PET_RDZV_CONF": "join_timeout=60",
            "PET_NNODES": "1:4",
            "PET_NPROC_PER_NODE": str(nproc),
            "PET_MAX_RESTARTS": "1000000",
            "PET_LOCAL_ADDR": address(index),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "ELASTICJOB_ENDPOINT": f"http://{self._operator.authority}",
            "ELASTICJOB_RUN_ID": RUN,
            "ELASTICJOB_NODE_INDEX": str(index),
            "ELASTICJOB_POD_IP": address(index),
            "ELASTICJOB_TOKEN_FILE": str(token),
        }


def address(index: int) -> str:
    """The loopback address of a node. Their order is not that of the indexes, so that no rank follows from it."""
    return f"127.0.0.{20 - index}"


def _children(pid: int) -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(child) for child in listed.split()]
