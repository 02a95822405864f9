"""The ports to Kubernetes for workers: ConfigMaps and Leases through the official synchronous client.

Objects go in and out as plain JSON. Each request has a deadline and is sent once: urllib3's own repetitions are off.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticjob.rendezvous.backends.extras import ThirdParty, require
from elasticjob.rendezvous.backends.kubernetes_objects import AlreadyExists, Conflict, ThrottledError
from elasticjob.rendezvous.backends.options import MAX_READ_TIMEOUT, bounded_int, existing_file, url_host
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousStateError
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.utils import parse_rendezvous_endpoint

DEFAULT_READ_TIMEOUT = 10
API_PORT = 443
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_JSON = "application/json"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """How to reach the API server, and the namespace to work in. `timeout` is the seconds one request may take."""

    api: ThirdParty
    namespace: str
    timeout: float

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return str(self.api.configuration.host)


def connect(params: RendezvousParameters) -> Cluster:
    """Find the API server: that of the pod, or else of the kubeconfig; a non-empty endpoint replaces its address.

    Raises:
        ValueError: An option or the endpoint cannot be used.
        RendezvousConnectionError: There is no usable cluster configuration.
        ModuleNotFoundError: The `kubernetes` package is not installed.
    """
    kubernetes = require("kubernetes", needed_by="the kubernetes backend", extra="kubernetes")
    kubeconfig, context = existing_file(params, "kubeconfig"), params.get("context")
    configuration = kubernetes.client.Configuration()
    # urllib3 would repeat a request three times behind our back, each with the full time-out.
    configuration.retries = False
    try:
        if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            kubernetes.config.load_incluster_config(client_configuration=configuration)
            default_namespace = NAMESPACE_FILE.read_text().strip()
        else:
            kubernetes.config.load_kube_config(kubeconfig, context, configuration, persist_config=False)
            default_namespace = _context_namespace(kubernetes, kubeconfig, context)
    except Exception as error:  # the loader lets anything escape that a broken file causes
        raise RendezvousConnectionError(f"no configuration to reach a Kubernetes API server: {error}") from error
    if params.endpoint.strip():
        configuration.host = _api_url(params.endpoint.strip())
    return Cluster(
        api=kubernetes.client.ApiClient(configuration),
        namespace=_namespace(params.get("namespace", default_namespace)),
        timeout=float(bounded_int(params, "read_timeout", DEFAULT_READ_TIMEOUT, maximum=MAX_READ_TIMEOUT)),
    )


def _api_url(endpoint: str) -> str:
    scheme, separator, authority = endpoint.partition("://")
    if not separator:
        scheme, authority = "https", endpoint
    if scheme not in ("http", "https"):
        raise ValueError(f"endpoint {endpoint!r} has the scheme {scheme!r}; http and https are known")
    host, port = parse_rendezvous_endpoint(authority.rstrip("/"), default_port=API_PORT)
    return f"{scheme}://{url_host(host)}:{port}"


def _context_namespace(kubernetes: ThirdParty, kubeconfig: str | None, context: str | None) -> str:
    contexts, active = kubernetes.config.list_kube_config_contexts(kubeconfig)
    chosen = next((entry for entry in contexts if entry["name"] == context), active)
    return str(chosen["context"].get("namespace", "default"))


def _namespace(value: object) -> str:
    text = str(value)
    if not _NAMESPACE.fullmatch(text):
        raise ValueError(f"namespace must be a DNS-1123 label of at most 63 characters, not {value!r}")
    return text


class OfficialObjects:
    """The objects of one resource in one namespace."""

    def __init__(self, cluster: Cluster, *, kind: str, collection: str) -> None:
        """Send nothing yet. `collection` is the path of the resource, with `{namespace}` in it."""
        self._urllib3 = require("urllib3", needed_by="the kubernetes backend", extra="kubernetes")
        self._kubernetes = require("kubernetes", needed_by="the kubernetes backend", extra="kubernetes")
        self._cluster = cluster
        self._kind = kind
        self._collection = collection

    def read(self, name: str) -> dict[str, Any] | None:
        """The object, or None when there is none of this name."""
        try:
            return self._request("GET", name, self._collection + "/{name}")
        except self._kubernetes.client.ApiException as error:
            if error.status == 404:
                return None
            raise self._failed("GET", name, error) from error

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make an object; raises `AlreadyExists`."""
        name = body["metadata"]["name"]
        try:
            return self._request("POST", name, self._collection, body)
        except self._kubernetes.client.ApiException as error:
            if error.status == 409:
                raise AlreadyExists(name) from error
            raise self._failed("POST", name, error) from error

    def replace(self, body: dict[str, Any]) -> dict[str, Any]:
        """Write an object that carries its UID and resourceVersion; raises `Conflict`."""
        name = body["metadata"]["name"]
        try:
            return self._request("PUT", name, self._collection + "/{name}", body)
        except self._kubernetes.client.ApiException as error:
            if error.status in (404, 409):
                raise Conflict(name) from error
            raise self._failed("PUT", name, error) from error

    def _request(self, method: str, name: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        api = self._cluster.api
        request = api.param_serialize(
            method=method,
            resource_path=path,
            path_params={"namespace": self._cluster.namespace, "name": name},
            header_params={"Accept": _JSON, **({"Content-Type": _JSON} if body else {})},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = api.call_api(*request, _request_timeout=self._cluster.timeout)
            response.read()
            if not 200 <= response.status <= 299:
                raise self._kubernetes.client.ApiException(http_resp=response)
            return _object(response.data)
        except (self._urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise RendezvousConnectionError(f"{self._describe(method, name)} failed: {error}") from error

    def _failed(self, method: str, name: str, error: ThirdParty) -> Exception:
        message = f"{self._describe(method, name)} was refused: {error.status} {error.reason}: {_message(error.body)}"
        if error.status in (413, 422):
            return RendezvousStateError(message)
        retry_after = (error.headers or {}).get("Retry-After", "")
        if error.status == 429 and retry_after.isascii() and retry_after.isdigit():
            return ThrottledError(f"{message} (retry after {retry_after} s)", retry_after=float(retry_after))
        return RendezvousConnectionError(message)

    def _describe(self, method: str, name: str) -> str:
        return f"{method} of {self._kind} {self._cluster.namespace}/{name} at {self._cluster.url}"


def _object(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict) or "uid" not in (found.get("metadata") or {}):
        raise ValueError(f"the answer is no Kubernetes object: {data[:100]!r}")
    return found


def _message(body: str | None) -> str:
    try:
        return str(json.loads(body or "")["message"])
    except (ValueError, TypeError, KeyError):
        return (body or "no reason given")[:200]


class OfficialConfigMaps(OfficialObjects):
    """The port `ConfigMaps`."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, kind="ConfigMap", collection="/api/v1/namespaces/{namespace}/configmaps")


class OfficialLeases(OfficialObjects):
    """The port `Leases`."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, kind="Lease", collection="/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
