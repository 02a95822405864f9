"""Single calls to the API server of a cluster, for what every test needs: kubectl takes a fifth of a second each."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.cluster.control_plane import Files
from tests.cluster.errors import ClusterError
from tests.cluster.processes import wait_until
from tests.cluster.state import Record

_CALL_SECONDS = 60.0
_ACCOUNT_SECONDS = 90.0


@dataclass(frozen=True)
class RawApi:
    """The API server of a cluster, as a user who may do everything."""

    record: Record

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer as JSON; None if there is no such object."""
        port = self.record.ports["api-server"]
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=_CALL_SECONDS, context=self._context())
        with contextlib.closing(connection):
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return None
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise ClusterError(f"{method} {path}: {answer.status} {said.decode(errors='replace')}")
        return json.loads(said)

    def _context(self) -> ssl.SSLContext:
        files = Files(self.record.directory)
        context = ssl.create_default_context(cafile=str(files.authority))
        context.load_cert_chain(files.pki / "kubelet-client.crt", files.pki / "kubelet-client.key")
        return context

    @contextlib.contextmanager
    def namespace(self, *, restricted: bool = False) -> Iterator[str]:
        """A namespace with a name of its own, deleted at the end (without waiting for it to be gone)."""
        name = f"t-{uuid.uuid4().hex[:10]}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"} if restricted else {}
        path = f"/api/v1/namespaces/{name}"
        metadata = {"name": name, "labels": labels}
        self.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        try:
            if "kube-controller-manager" in self.record.processes:
                # Pods are refused until the controller-manager has made the default service account.
                wait_until(
                    lambda: self.call("GET", f"{path}/serviceaccounts/default") is not None,
                    what=f"the default service account of {name}",
                    timeout=_ACCOUNT_SECONDS,
                )
            yield name
        finally:
            self.call("DELETE", path)
