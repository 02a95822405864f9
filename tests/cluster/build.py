"""The executables of the cluster, built from Go modules once per machine.

One executable is every program (it looks at the name it is called by), so the build is keyed by the few files that
decide its content. A finished build is a directory in the cache that appears by one rename: whoever sees it, sees all
of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.commands import run, run_long
from tests.cluster.errors import ClusterError
from tests.cluster.locks import exclusive
from tests.cluster.paths import BINARIES_SOURCE, cache_dir
from tests.cluster.progress import say

PROGRAMS = (
    "coredns",
    "etcd",
    "helm",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
SOURCES = ("go.mod", "go.sum", "main.go", "pause/main.go")
PEER_SOURCE = BINARIES_SOURCE.parents[1] / "bench" / "peers" / "training_operator"
PEER_SOURCES = ("go.mod", "go.sum", "main.go")
BUILD_TIMEOUT = 3600.0


def source_key(source: Path = BINARIES_SOURCE, names: Sequence[str] = SOURCES) -> str:
    """Names a build: the same sources give the same key, and any change of one of them another."""
    digest = hashlib.sha256()
    for name in names:
        content = (source / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def module_version(go_mod: str, module: str) -> str:
    """The version of a required module, as in "v1.37.2"."""
    found = re.search(rf"^\s*{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ClusterError(f"go.mod requires no module {module}")
    return found[1]


def link_flags(go_mod: str) -> str:
    """The linker's flags: no debug data (it doubles the size), and the versions that the programs report."""
    kubernetes = module_version(go_mod, "k8s.io/kubernetes")
    major, minor = kubernetes.removeprefix("v").split(".")[:2]
    settings = {
        "k8s.io/component-base/version.gitVersion": kubernetes,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "helm.sh/helm/v4/internal/version.version": module_version(go_mod, "helm.sh/helm/v4"),
    }
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in settings.items())])


def binaries() -> Path:
    """The directory with the programs; builds them when this machine has none of these sources yet."""
    target = cache_dir() / f"binaries-{source_key()}"
    if target.is_dir():
        return target
    with exclusive("build", timeout=BUILD_TIMEOUT, waiting_for="build of the cluster's executables"):
        if not target.is_dir():
            _build(target)
    return target


def peer_directory() -> Path:
    """The place in the cache of the peer that benchmarks compare with; `tests.bench` builds it."""
    return cache_dir() / f"training-operator-{source_key(PEER_SOURCE, PEER_SOURCES)}"


def outdated_builds() -> list[Path]:
    """What was built of older sources, half-made builds too."""
    present = {cache_dir() / f"binaries-{source_key()}", peer_directory()}
    found = (path for kind in ("binaries", "training-operator") for path in cache_dir().glob(f"{kind}-*"))
    return sorted(path for path in found if path not in present)


def _build(target: Path) -> None:
    go_mod = (BINARIES_SOURCE / "go.mod").read_text()
    go = find_go(minimum_go(go_mod))
    say(f"building the cluster's executables with {go}; this takes 8 to 17 minutes, once per machine")
    scratch = target.with_name(f"{target.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    compile_package(go, source=BINARIES_SOURCE, output=scratch / "binaries", flags=link_flags(go_mod))
    compile_package(go, source=BINARIES_SOURCE, package="./pause", output=scratch / "pause", flags="-s -w")
    for name in PROGRAMS:
        (scratch / name).symlink_to("binaries")
    scratch.rename(target)


def compile_package(go: Path, *, source: Path, package: str = ".", output: Path, flags: str) -> None:
    """Build one program of a module, with a line of progress every few seconds."""
    log = cache_dir() / "build.log"
    run_long(
        [go, "build", "-v", "-trimpath", "-ldflags", flags, "-o", output, package],
        what=f"go build {package}",
        log=log,
        timeout=BUILD_TIMEOUT,
        env={"CGO_ENABLED": "0"},
        cwd=source,
        measure=lambda: f"({len(log.read_bytes().splitlines())} packages compiled)",
    )


def minimum_go(go_mod: str) -> tuple[int, int]:
    """The oldest Go that can build the module."""
    found = re.search(r"^go (\d+)\.(\d+)", go_mod, re.MULTILINE)
    if found is None:
        raise ClusterError("go.mod names no Go version")
    return int(found[1]), int(found[2])


def find_go(minimum: tuple[int, int]) -> Path:
    """The Go tool, when it is there and new enough (Debian bookworm's own package is too old for Kubernetes)."""
    wanted = f"{minimum[0]}.{minimum[1]}"
    found = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
    if found is None:
        raise ClusterError(f"no Go tool on PATH: the cluster's executables need Go {wanted} or newer")
    said = run([found, "env", "GOVERSION"], timeout=60, cwd=BINARIES_SOURCE).strip()
    version = re.match(r"go(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < minimum:
        raise ClusterError(f"{found} is {said}: the cluster's executables need Go {wanted} or newer")
    return Path(found)
