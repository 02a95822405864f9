"""Running other programs to their end: always with a deadline, and with what they said in the error."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.progress import say

_TAIL_CHARACTERS = 4000
_REPORT_SECONDS = 10.0


def run(
    command: Sequence[str | Path],
    *,
    timeout: float,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a command and return its standard output."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]}: no such program") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{_shown(command)}: not done after {timeout:.0f} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout)[-_TAIL_CHARACTERS:].strip()
        raise ClusterError(f"{_shown(command)}: exit code {done.returncode}: {said}")
    return done.stdout


def run_long(
    command: Sequence[str | Path],
    *,
    what: str,
    log: Path,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    measure: Callable[[], str] = lambda: "",
) -> None:
    """Run a command that takes minutes: its output goes to `log`, and every 10 s a line says how far it is."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
    try:
        _watch(process, what=what, timeout=timeout, measure=measure)
    finally:
        _end_group(process)
    if process.returncode != 0:
        tail = log.read_text(errors="replace")[-_TAIL_CHARACTERS:]
        raise ClusterError(f"{what}: exit code {process.returncode}; the end of {log}:\n{tail}")


def _watch(process: subprocess.Popen[bytes], *, what: str, timeout: float, measure: Callable[[], str]) -> None:
    started = time.monotonic()
    finished = threading.Event()

    def report() -> None:
        while not finished.wait(_REPORT_SECONDS):
            say(f"{what}: {time.monotonic() - started:.0f} s {measure()}".rstrip())

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{what}: not done after {timeout:.0f} s") from error
    finally:
        finished.set()
        reporter.join()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, 9)
        process.wait()


def _shown(command: Sequence[str | Path]) -> str:
    return " ".join(str(part) for part in command)
