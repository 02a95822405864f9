"""What both launchers do for the training processes of a node, whatever framework they use."""

import os
import signal
from pathlib import Path

from elasticjob.rendezvous import environment
from elasticjob.rendezvous.protocol import Failure, shorten


def record_round(number: int) -> None:
    """Let processes that start from now on know their round, which fences what they write.

    Sets `ELASTICJOB_ROUND`. If `ELASTICJOB_ROUND_FILE` is set, writes the number there too, at once and whole, so that
    a process of an older round that looks before it writes finds out.

    Raises:
        OSError: The file cannot be written.
    """
    os.environ[environment.ROUND] = str(number)
    file = os.environ.get(environment.ROUND_FILE, "").strip()
    if file:
        unfinished = Path(f"{file}.{os.getpid()}")
        unfinished.write_text(f"{number}\n", encoding="ascii")
        unfinished.replace(file)


def worker_failure(returncode: int, who: str) -> Failure:
    """Describe how a process ended, in the terms of Kubernetes: 128 + number for one that a signal ended.

    Args:
        returncode: Not 0. Negative for a signal, as `subprocess` has it.
        who: Names the process.
    """
    if returncode > 0:
        return Failure(exit_code=returncode, message=shorten(f"{who} exited with code {returncode}"))
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    return Failure(exit_code=128 - returncode, message=shorten(f"{who} was killed by {name}"))
