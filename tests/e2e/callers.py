"""Calls to the rendezvous as a stranger, or as a pod whose token one has got hold of, makes them."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from tests.e2e.space import Space

AUDIENCE = "elasticjob.dev/rendezvous"


def call(url: str, method: str, path: str, body: dict[str, Any], *, token: str | None) -> tuple[int, dict[str, Any]]:
    """Make one call; certificates are not what is tested here. Returns status and answer."""
    headers = {"Elasticjob-Protocol": "1", "Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    with contextlib.closing(_connection(url)) as connection:
        connection.request(method, path, body=json.dumps(body), headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def join(url: str, run_id: str, token: str | None) -> tuple[int, dict[str, Any]]:
    """Ask to join a run, as an agent does."""
    body = {"incarnation": "0" * 32, "address": "10.0.0.1", "pid": 1, "round": 0, "failure": None, "wait": 0}
    return call(url, "POST", f"/v1/runs/{run_id}/join", body, token=token)


def pod_token(space: Space, pod: str, *, audience: str = AUDIENCE) -> str:
    """A token like the one that is projected into a pod."""
    uid = space.get("pod", pod)["metadata"]["uid"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}", f"--bound-object-uid={uid}")
    return space.kubectl("create", "token", "default", f"--audience={audience}", *bound).strip()


def _connection(url: str) -> http.client.HTTPConnection:
    address = urlsplit(url)
    assert address.hostname is not None
    if address.scheme == "https":
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection(address.hostname, address.port, timeout=10, context=context)
    return http.client.HTTPConnection(address.hostname, address.port, timeout=10)
