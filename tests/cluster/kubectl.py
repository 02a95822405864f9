"""Real kubectl and Helm against one API server, as one kind of user; every call has a deadline."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.commands import run

_TIMEOUT = 60.0


def _cache(kubeconfig: Path) -> dict[str, str]:
    # What a server can do is cached by its address, and the next cluster may get the same port.
    return {"KUBECACHEDIR": str(kubeconfig.parent / "kubectl-cache")}


@dataclass(frozen=True)
class Kubectl:
    """`kubectl` with a kubeconfig; calling it returns what it printed."""

    program: Path
    kubeconfig: Path

    def __call__(self, *args: str, input: str | None = None, timeout: float = _TIMEOUT) -> str:
        """Run `kubectl <args>`; a non-zero exit code raises ClusterError with what kubectl said."""
        command: list[str | Path] = [self.program, "--kubeconfig", self.kubeconfig, *args]
        return run(command, stdin=input, timeout=timeout, env=_cache(self.kubeconfig))

    def json(self, *args: str, timeout: float = _TIMEOUT) -> Any:
        """Run `kubectl <args> -o json` and parse the answer."""
        return json.loads(self(*args, "-o", "json", timeout=timeout))

    def apply(self, *objects: dict[str, Any], timeout: float = _TIMEOUT) -> str:
        """Create or change objects that are given as Python data."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self("apply", "-f", "-", input=json.dumps(items), timeout=timeout)

    def exists(self, *args: str) -> bool:
        """Whether `kubectl get <args>` finds anything."""
        return bool(self("get", *args, "--ignore-not-found", "-o", "name").strip())


@dataclass(frozen=True)
class Helm:
    """`helm` with a kubeconfig. Its own directories are the cluster's, so no user's settings or plugins take part."""

    program: Path
    kubeconfig: Path
    home: Path

    def __call__(self, *args: str, input: str | None = None, timeout: float = 300.0) -> str:
        """Run `helm <args>`; a non-zero exit code raises ClusterError with what helm said."""
        homes = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        command: list[str | Path] = [self.program, "--kubeconfig", self.kubeconfig, *args]
        return run(command, stdin=input, timeout=timeout, env={**homes, **_cache(self.kubeconfig)})
