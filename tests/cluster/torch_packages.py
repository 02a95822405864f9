"""torch for pods: installed once per machine and version into the cache, and mounted read-only by hostPath.

An image with torch in it would be copied into every node's containerd; a mount costs nothing. The pods' Python must
be of the minor version that installed it (3.11).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.cluster.commands import run, run_long
from tests.cluster.image_sets import image_python
from tests.cluster.locks import exclusive
from tests.cluster.paths import cache_dir
from tests.cluster.progress import say

NEWEST = "2.15.0"
# From this version on torch works with NumPy 2 (an older one crashes on import with it).
_NUMPY_2_SINCE = (2, 3)
_TIMEOUT = 3600.0
_COMPILED = ".compiled"
# What agents and training processes load. Compiled once, it is not by each of the many processes that do.
_LOADED = "torch, torch.distributed.run, torch.nn.parallel, torch.utils.data, sklearn.datasets"


def torch_requirements(version: str) -> list[str]:
    """What gets installed with this version of torch."""
    old = tuple(int(part) for part in version.split(".")[:2]) < _NUMPY_2_SINCE
    return [f"torch=={version}", "numpy<2" if old else "numpy", "scikit-learn"]


def torch_site_packages(version: str | None = None) -> Path:
    """The directory with torch (the newest or this version), numpy and scikit-learn; installs it when missing."""
    wanted = version or NEWEST
    target = cache_dir() / f"torch-{wanted}"
    if not target.is_dir():
        with exclusive(f"torch-{wanted}", timeout=_TIMEOUT, waiting_for=f"installation of torch {wanted}"):
            if not target.is_dir():
                _install(wanted, target)
    if not (target / _COMPILED).exists():
        with exclusive(f"torch-{wanted}", timeout=_TIMEOUT, waiting_for=f"compilation of torch {wanted}"):
            _compile(target)
    return target


def _install(version: str, target: Path) -> None:
    say(f"installing torch {version} into {target} (up to 6 GB, 3 to 7 minutes), once per machine")
    log = cache_dir() / f"torch-{version}.log"
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="torch-scratch-") as scratch:
        site = Path(scratch) / "site"
        command = [image_python(), "-m", "pip", "install", "--no-compile", "--no-cache-dir", "--target", str(site)]
        run_long(
            [*command, *torch_requirements(version)], what=f"pip install torch {version}", log=log, timeout=_TIMEOUT
        )
        run([image_python(), "-S", "-c", "import torch, sklearn"], timeout=300, env={"PYTHONPATH": str(site)})
        # Pods run as another user than the one who installs.
        run(["chmod", "-R", "a+rX", site], timeout=300)
        site.rename(target)


def _compile(site: Path) -> None:
    paths = {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": ""}
    run([image_python(), "-c", f"import {_LOADED}"], timeout=300, env=paths)
    run(["chmod", "-R", "a+rX", site], timeout=300)
    (site / _COMPILED).touch()
