"""What is mounted below a directory."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cluster.commands import run
from tests.cluster.errors import ClusterError

_TABLE = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")


def mounts_below(table: str, directory: Path) -> list[Path]:
    """The mount points below a directory in a mountinfo table, the last mounted first: an order to unmount in."""
    points = [Path(_unescape(line.split()[4])) for line in table.splitlines()]
    return [point for point in reversed(points) if directory in point.parents]


def _unescape(field: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)


def unmount_below(directory: Path) -> None:
    """Unmount everything below a directory; raises when something stays, since the directory gets deleted next."""
    for point in _below(directory):
        # Detached at once even if something still looks at it: its users have been killed.
        run(["umount", "--lazy", point], timeout=30)
    if left := _below(directory):
        raise ClusterError(f"still mounted below {directory}: {', '.join(map(str, left))}")


def _below(directory: Path) -> list[Path]:
    return mounts_below(_TABLE.read_text(), directory.resolve())
