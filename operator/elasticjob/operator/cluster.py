"""The API server, reached by the official asynchronous client.

Only the client's transport is used: connections, TLS, credentials and their renewal. Bodies stay dictionaries,
because a round trip of one Pod through the client's models costs ten times its JSON and the models cost memory. Every
call has a deadline that covers connecting, sending and reading the answer, and fails with one of
`elasticjob.operator.errors`.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from elasticjob.operator.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.ports import Body, ObjectList, Resource

PAGE_SIZE = 500
"""Objects a list call asks for at a time; keeps one answer of large pods to a few MiB."""

Connect: TypeAlias = Callable[[], Awaitable[Configuration]]
"""Finds the API server and the credentials, anew at each call."""

_ACCEPTED = "application/json, application/jwk-set+json"
"""The published token keys are JSON too, but are served under the name of their own media type alone."""
_MERGE_PATCH = "application/merge-patch+json"


async def load_configuration() -> Configuration:
    """Find the API server and the credentials.

    In a pod these are the service account's, whose token is read anew every minute; elsewhere the kubeconfig's. A
    `KUBECONFIG` variable wins over the service account.
    """
    configuration = Configuration()
    if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return configuration


class Cluster:
    """The implementation of `ClusterPort`. Belongs to the event loop on which it is first used."""

    def __init__(self, configuration: Configuration, *, timeout: float, metrics: Metrics) -> None:
        self._client = ApiClient(configuration)
        self._client.user_agent = "elasticjob-operator"
        self._timeout = timeout
        self._metrics = metrics

    async def close(self) -> None:
        """Give up all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, resource: Resource, *, namespace: str | None, name: str, timeout: float | None = None) -> Body:
        """Read one object."""
        return await self._call("GET", path(resource, namespace, name), resource=resource, timeout=timeout)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        label_selector: str = "",
        timeout: float | None = None,
    ) -> ObjectList:
        """Read all objects page by page, all at the version of the first page."""
        items: list[Body] = []
        query = {"limit": str(PAGE_SIZE)}
        if label_selector:
            query["labelSelector"] = label_selector
        while True:
            page = await self._call(
                "GET", path(resource, namespace), resource=resource, query=query, timeout=timeout, verb="list"
            )
            items.extend(page["items"])
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return ObjectList(items=items, resource_version=page["metadata"]["resourceVersion"])

    async def create(
        self, resource: Resource, body: Body, *, namespace: str | None, timeout: float | None = None
    ) -> Body:
        """Create an object."""
        return await self._call("POST", path(resource, namespace), resource=resource, body=body, timeout=timeout)

    async def replace(
        self, resource: Resource, body: Body, *, subresource: str = "", timeout: float | None = None
    ) -> Body:
        """Replace an object that was read before; never unconditionally."""
        meta = body["metadata"]
        if not meta.get("resourceVersion"):
            raise ValueError(f"{resource.plural} {meta.get('name')}: a replace needs metadata.resourceVersion")
        target = path(resource, meta.get("namespace"), meta["name"], subresource)
        return await self._call("PUT", target, resource=resource, body=body, timeout=timeout)

    async def patch(
        self,
        resource: Resource,
        patch: Mapping[str, Any],
        *,
        namespace: str | None,
        name: str,
        subresource: str = "",
        timeout: float | None = None,
    ) -> Body:
        """Apply a JSON merge patch."""
        target = path(resource, namespace, name, subresource)
        return await self._call("PATCH", target, resource=resource, body=patch, timeout=timeout)

    async def delete(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        name: str,
        uid: str,
        grace_period: int | None = None,
        timeout: float | None = None,
    ) -> Body:
        """Delete exactly the object with this UID. What it owns is deleted after it, in the background."""
        options: Body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        target = path(resource, namespace, name)
        return await self._call("DELETE", target, resource=resource, body=options, timeout=timeout)

    async def get_raw(self, path: str, *, timeout: float | None = None) -> Body:
        """Read a non-resource URL that answers with a JSON object."""
        return await self._call("GET", path, resource=None, timeout=timeout)

    async def _call(
        self,
        method: str,
        target: str,
        *,
        resource: Resource | None,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        timeout: float | None,
        verb: str = "",
    ) -> Body:
        seconds = self._timeout if timeout is None else timeout
        plural = resource.plural if resource else "raw"
        with self._metrics.api_call(verb or method.lower(), plural) as outcome:
            try:
                async with asyncio.timeout(seconds):
                    status, headers, text = await self._send(method, target, body=body, query=query)
            except TimeoutError:
                raise Unavailable(f"{method} {target}: no answer within {seconds:g} seconds") from None
            except (aiohttp.ClientError, OSError) as error:
                raise Unavailable(f"{method} {target}: {str(error) or type(error).__name__}") from error
            outcome.code = str(status)
            return _decode(status, headers, text)

    async def _send(
        self, method: str, target: str, *, body: Mapping[str, Any] | None, query: Mapping[str, str] | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        _, url, headers, _, _ = await self._client.param_serialize(
            method, target, header_params={"Accept": _ACCEPTED}, auth_settings=["BearerToken"]
        )
        headers["Content-Type"] = _MERGE_PATCH if method == "PATCH" else "application/json"
        url += "?" + urlencode(query) if query else ""
        # The client's own time-out is only a backstop: the caller's deadline also covers credentials and decoding.
        response = await self._client.call_api(method, url, headers, body, _request_timeout=3600.0)
        content: bytes = await response.read()  # type: ignore[no-untyped-call]
        return response.status, response.headers, content


def path(resource: Resource, namespace: str | None, name: str = "", subresource: str = "") -> str:
    """The URL path of a collection, an object or a subresource."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    parts = ["namespaces", namespace] if namespace else []
    parts += [resource.plural, *filter(None, [name, subresource])]
    return root + "/" + "/".join(quote(part, safe="") for part in parts)


def _decode(status: int, headers: Mapping[str, str], text: bytes) -> Body:
    try:
        decoded = json.loads(text)
    except ValueError:
        decoded = None
    if 200 <= status < 300 and isinstance(decoded, dict):
        return decoded
    if not isinstance(decoded, dict):
        decoded = {"message": text[:500].decode("utf-8", "replace").strip()}
    raise error_of(status, decoded, retry_after=headers.get("Retry-After"))


def error_of(status: int, answer: Mapping[str, Any], *, retry_after: str | None = None) -> ClusterError:
    """The typed error for an answer that is not a success.

    Args:
        status: HTTP status.
        answer: The decoded `Status` object.
        retry_after: Value of the header of that name.
    """
    message = str(answer.get("message") or f"HTTP {status}")
    reason = str(answer.get("reason") or "")
    if status == 429:
        return TooManyRequests(message, retry_after=_seconds(retry_after), reason=reason)
    kinds: dict[int, type[ClusterError]] = {400: Invalid, 403: Forbidden, 404: NotFound, 413: Invalid, 422: Invalid}
    kind = kinds.get(status, Unavailable)
    if status == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
    return kind(message, status=status, reason=reason)


def _seconds(retry_after: str | None) -> float:
    try:
        return max(0.0, float(retry_after or 1))
    except ValueError:
        return 1.0
