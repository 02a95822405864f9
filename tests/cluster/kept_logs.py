"""The logs of clusters that did not do what they should, kept beyond their end.

A cluster's directory goes when it is taken down. What its components said is copied into the cache before that, so that
a failure can be explained afterwards; the newest few copies are kept.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from tests.cluster.paths import cache_dir
from tests.cluster.processes import log_tail
from tests.cluster.state import Record, all_records

_KEPT = 20


def keep(record: Record) -> Path:
    """Copy the logs of a cluster, those of its components and those beside them; returns where they are."""
    kept = cache_dir() / "failed"
    target = kept / f"{time.strftime('%Y%m%d-%H%M%S')}-{record.name}"
    target.mkdir(parents=True, exist_ok=True)
    for log in (*record.directory.glob("*.log"), *record.directory.glob("logs/*.log")):
        shutil.copyfile(log, target / log.name)
    for old in sorted(kept.iterdir())[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def own_records() -> list[Record]:
    """The clusters that belong to this process."""
    return [one for one in all_records() if one.owner is not None and one.owner.pid == os.getpid()]


def report(records: Iterable[Record]) -> str:
    """Where the logs of these clusters are now, and what those components last said that have ended by themselves."""
    lines = []
    for record in records:
        lines.append(f"logs of cluster {record.name}: {keep(record)}")
        ended = [name for name, process in record.processes.items() if not process.alive()]
        lines += [f"--- {name} has ended:\n{log_tail(record.log(name))}" for name in ended]
    return "\n".join(lines)
