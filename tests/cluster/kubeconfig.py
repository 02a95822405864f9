"""Kubeconfig files: who talks to which API server with which credentials."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.cluster.pki import Pair


def client_certificate(pair: Pair) -> dict[str, str]:
    """The credentials of a user that shows a certificate."""
    return {
        "client-certificate-data": _encoded(pair.certificate),
        "client-key-data": _encoded(pair.key),
    }


def bearer_token(token: str) -> dict[str, str]:
    """The credentials of a user that shows a token."""
    return {"token": token}


def kubeconfig(*, server: str, authority: bytes, user: dict[str, str], namespace: str = "default") -> dict[str, Any]:
    """A kubeconfig with one cluster, one user and the context of both."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "test", "cluster": {"server": server, "certificate-authority-data": _encoded(authority)}}
        ],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "current-context": "test",
    }


def write_kubeconfig(path: Path, content: dict[str, Any]) -> Path:
    """Write it, readable by the owner only since it holds credentials. JSON is YAML too."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=1))
    return path


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
