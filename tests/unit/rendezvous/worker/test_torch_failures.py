"""What torchrun logs about its workers, and what is made of it."""

import logging

import pytest

from elasticjob.rendezvous.protocol import Failure
from elasticjob.rendezvous.torch_failures import LOGGER, WorkerFailures
from elasticjob.rendezvous.worker import worker_failure

FAILED = "failed (exitcode: %s) local_rank: %s (pid: %s) of binary: %s"


@pytest.fixture
def log() -> logging.Logger:
    return logging.getLogger(LOGGER)


@pytest.fixture
def failures() -> WorkerFailures:
    return WorkerFailures()


def test_the_first_failure_of_a_group_is_reported_once(log: logging.Logger, failures: WorkerFailures) -> None:
    failures.attach()
    log.error(FAILED, 7, 1, 4242, "/usr/bin/python")
    log.error("Process %s did not exit after %s within %ss", 4242, "SIGKILL", 30)
    failures.detach()
    log.error(FAILED, 8, 1, 4243, "/usr/bin/python")
    expected = Failure(exit_code=7, message="worker with local rank 1 (pid 4242) exited with code 7")
    assert failures.take() == expected
    assert failures.take() is None


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("something else %s", (7,)),
        (FAILED, ()),
        (FAILED, (7, 1)),
        (FAILED, ("7", 1, 2, "x")),
        (FAILED, (None, 1, 2, "x")),
        (FAILED, (True, 1, 2, "x")),
        (FAILED, (0, 1, 2, "x")),
        ("failed (exitcode: 7) local_rank: 1", ()),
    ],
)
def test_a_record_that_is_worded_otherwise_says_nothing(
    failures: WorkerFailures, message: str, arguments: tuple[object, ...]
) -> None:
    failures.emit(logging.LogRecord(LOGGER, logging.ERROR, "x.py", 1, message, arguments, None))
    assert failures.take() is None


def test_no_record_can_hurt(failures: WorkerFailures) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    failures.emit(logging.LogRecord(LOGGER, logging.ERROR, "x.py", 1, FAILED, (7, Odd(), 2, "x"), None))
    assert failures.take() is None


@pytest.mark.parametrize(
    ("returncode", "code", "words"),
    [(3, 3, "exited with code 3"), (-9, 137, "killed by SIGKILL"), (-15, 143, "SIGTERM"), (-200, 328, "signal 200")],
)
def test_a_signal_is_told_as_128_and_its_number(returncode: int, code: int, words: str) -> None:
    failure = worker_failure(returncode, "worker")
    assert failure.exit_code == code
    assert words in failure.message
