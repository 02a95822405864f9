"""How the workers of a torchrun agent failed, which torchrun tells nobody but its log.

torchrun calls its rendezvous handler again both after a failure and after a change of membership, without saying which.
It logs the first failure of a group (`failed (exitcode: %s) local_rank: %s (pid: %s) of binary: %s`) just before; the
arguments of that record are read here. A release that logs something else is not misread: then nothing is known.
"""

import contextlib
import logging

from elasticjob.rendezvous.protocol import Failure
from elasticjob.rendezvous.worker import worker_failure

LOGGER = "torch.distributed.elastic.multiprocessing.api"
_FAILED = "failed (exitcode: %s)"
_FEWEST_ARGUMENTS = 3


class WorkerFailures(logging.Handler):
    """Remembers the last failure that torchrun logged. Never raises and never prints."""

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self._last: Failure | None = None

    def attach(self) -> None:
        """Start listening."""
        logging.getLogger(LOGGER).addHandler(self)

    def detach(self) -> None:
        """Stop listening."""
        logging.getLogger(LOGGER).removeHandler(self)

    def take(self) -> Failure | None:
        """The last failure that was not taken before, or None."""
        last, self._last = self._last, None
        return last

    def emit(self, record: logging.LogRecord) -> None:
        """Remember the failure, if the record is about one."""
        with contextlib.suppress(Exception):
            self._last = failure_of(record) or self._last


def failure_of(record: logging.LogRecord) -> Failure | None:
    """Read a log record of torchrun; None if it is about something else."""
    arguments = record.args
    if not (isinstance(record.msg, str) and record.msg.startswith(_FAILED)):
        return None
    if not (isinstance(arguments, tuple) and len(arguments) >= _FEWEST_ARGUMENTS):
        return None
    code, local_rank, pid = arguments[:3]
    if not isinstance(code, int) or isinstance(code, bool) or code == 0:
        return None
    return worker_failure(code, f"worker with local rank {local_rank} (pid {pid})")
