"""What a process has cost so far, from the kernel's books."""

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int, *, thread: str | None = None) -> float:
    """CPU time of all its threads, or of those with this name."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    named = [task for task in tasks if thread in (None, (task / "comm").read_text().strip())]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in named) / 1e9


def mib(pid: int) -> float:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20
