"""States of runs as etcd has them, read past the product."""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any

from elasticjob.operator.hosting.state_owner import without_owner
from tests.cluster.etcd_server import EtcdServer

PREFIX = "/jobs"


def ask(server: EtcdServer, path: str, body: dict[str, Any] | None = None) -> Any:
    """Make one call of etcd's HTTP interface."""
    request = urllib.request.Request(server.url + path, data=None if body is None else json.dumps(body).encode())
    context = None if server.certificates is None else server.certificates.client_context
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return json.load(answer)


def in_etcd(server: EtcdServer, run_id: str) -> bytes | None:
    """The state of a run below `PREFIX` in the v3 API."""
    key = base64.b64encode(f"{PREFIX}/rendezvous/{run_id}".encode()).decode()
    found = ask(server, "/v3/kv/range", {"key": key}).get("kvs", [])
    assert all("lease" not in one for one in found), "the state would be gone one day, while the job runs"
    return without_owner(base64.b64decode(found[0]["value"])) if found else None
