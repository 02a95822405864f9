"""One holder at a time, and never a stale lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.errors import ClusterError
from tests.cluster.locks import exclusive
from tests.cluster.paths import REPOSITORY

HOLD = """
import os, sys
from tests.cluster.locks import exclusive
with exclusive("x", timeout=1, waiting_for="test"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICJOB_CACHE", str(tmp_path))


def test_a_lock_is_free_again_after_its_holder() -> None:
    for _ in range(2):
        with exclusive("x", timeout=1, waiting_for="test"):
            pass


def test_a_second_holder_gives_up_and_says_for_what_it_waited() -> None:
    with (
        exclusive("x", timeout=1, waiting_for="first"),
        pytest.raises(ClusterError, match=r"second.*more than 0 s"),
        exclusive("x", timeout=0.2, waiting_for="second"),
    ):
        pass


def test_a_killed_holder_leaves_no_lock() -> None:
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
        holder.wait()
    with exclusive("x", timeout=1, waiting_for="test"):
        pass
