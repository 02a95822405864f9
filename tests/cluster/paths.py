"""Where things are kept.

Two places only: the *cache* holds what is expensive and outlives every cluster (executables, images, torch), and the
*clusters* directory holds one directory per running cluster, which is gone after `down`. Neither is in the repository.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BINARIES_SOURCE = Path(__file__).resolve().parent / "binaries"


def cache_dir() -> Path:
    """The user's cache directory for this project; made when it is missing."""
    chosen = os.environ.get("ELASTICJOB_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(chosen) if chosen else Path(base) / "elasticjob"
    path.mkdir(parents=True, exist_ok=True)
    return path


def clusters_dir() -> Path:
    """The parent of all cluster directories; short, since Unix socket paths below it may have 107 bytes at most."""
    path = Path(tempfile.gettempdir()) / f"elasticjob-{os.getuid()}"
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    return path


def locks_dir() -> Path:
    """Lock files outlive the clusters they guard: deleting a lock file would let two processes hold "the" lock."""
    path = cache_dir() / "locks"
    path.mkdir(exist_ok=True)
    return path
