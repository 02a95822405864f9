"""Put the worker's end of elasticjob into a directory, so that images of training jobs need not contain it.

    python -m elasticjob.rendezvous.inject /elasticjob/lib

The operator runs this in an init container, with its own image, on a volume that the worker has on its `PYTHONPATH`.
The directory then holds the packages `elasticjob.events` and `elasticjob.rendezvous` and the metadata of the
distribution, by which `importlib.metadata` finds the `torchrun.handlers` entry point.

Each part appears whole, by a rename, the metadata last: nothing finds an entry point whose code is not there. Running
it again, also after it was killed half-way, replaces what is there. Any user can read the result.
"""

import argparse
import shutil
import sys
import tempfile
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "elasticjob"
PACKAGES = ("events", "rendezvous")
ENTRY_POINT_GROUPS = ("torchrun.handlers", "elasticjob.rendezvous.backends")
"""Entry points that make sense in a worker: no console scripts."""

_SCRATCH_PREFIX = ".elasticjob-inject-"
_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644


def inject(target: Path) -> None:
    """Fill a directory, which is made if need be.

    Raises:
        OSError: The directory cannot be written. The message names the path.
        PackageNotFoundError: This code runs without the metadata of its distribution.
    """
    found = distribution(DISTRIBUTION)
    target.mkdir(parents=True, exist_ok=True)
    for leftover in target.glob(f"{_SCRATCH_PREFIX}*"):
        shutil.rmtree(leftover)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=target))
    try:
        fresh = scratch / "new"
        _copy_packages(fresh / DISTRIBUTION)
        metadata = _write_metadata(found, fresh)
        _make_readable(fresh)
        _replace_all(target, scratch, fresh, metadata.name)
    finally:
        shutil.rmtree(scratch)


def main(arguments: list[str] | None = None) -> int:
    """Run as a command. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m elasticjob.rendezvous.inject", description=__doc__)
    parser.add_argument("directory", type=Path, help="where to put the packages; goes onto PYTHONPATH")
    directory: Path = parser.parse_args(arguments).directory
    try:
        inject(directory)
    except OSError as error:
        sys.stderr.write(f"cannot fill {directory}: {error}\n")
        return 1
    return 0


def _copy_packages(target: Path) -> None:
    for name in PACKAGES:
        spec = find_spec(f"{DISTRIBUTION}.{name}")
        if spec is None or spec.origin is None:
            raise FileNotFoundError(f"package {DISTRIBUTION}.{name} is not installed here")
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc", "*.pyo")
        shutil.copytree(Path(spec.origin).parent, target / name, ignore=ignore, copy_function=shutil.copyfile)


def _write_metadata(found: Distribution, target: Path) -> Path:
    directory = target / f"{DISTRIBUTION}-{found.version}.dist-info"
    directory.mkdir()
    header = f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {found.version}\n"
    (directory / "METADATA").write_text(header, encoding="utf-8")
    (directory / "INSTALLER").write_text("elasticjob.rendezvous.inject\n", encoding="utf-8")
    (directory / "entry_points.txt").write_text(_entry_points(found), encoding="utf-8")
    return directory


def _entry_points(found: Distribution) -> str:
    lines: list[str] = []
    for group in ENTRY_POINT_GROUPS:
        lines.append(f"[{group}]")
        lines += sorted({f"{point.name} = {point.value}" for point in found.entry_points.select(group=group)})
    return "\n".join(lines) + "\n"


def _make_readable(root: Path) -> None:
    # Not left to the umask: workers run as any user.
    for path in root.rglob("*"):
        path.chmod(_DIRECTORY_MODE if path.is_dir() else _FILE_MODE)


def _replace_all(target: Path, scratch: Path, fresh: Path, metadata: str) -> None:
    for number, old in enumerate(target.glob(f"{DISTRIBUTION}-*.dist-info")):
        old.rename(scratch / f"old-metadata-{number}")
    old_packages = target / DISTRIBUTION
    if old_packages.exists():
        old_packages.rename(scratch / "old-packages")
    (fresh / DISTRIBUTION).rename(old_packages)
    (fresh / metadata).rename(target / metadata)


if __name__ == "__main__":
    sys.exit(main())
