"""The Kopf shell: watches the cluster and passes on what it sees, nothing else.

Kopf's low-level `on.event` handlers are called once for each watch event and never retried, so they decide nothing:
each hands the object to `Feed.see` and returns. There is no state in annotations, no finalizer, no peering; the
framework needs only `list` and `watch`.

A handler also tells of a *re-list*: Kopf lists anew when a watch has fallen behind, and what was deleted meanwhile is
never told. An object that is listed though it is known is the sign of it; the feed then compares with a full list.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import kopf
from kopf._cogs.structs import dicts
from kopf._core.engines.peering import Identity
from kubernetes.aio.client.configuration import Configuration

from elasticjob.operator.cluster import Connect
from elasticjob.operator.constants import GROUP
from elasticjob.operator.ports import Body, Resource
from elasticjob.operator.resources import WATCHED, selector_of
from elasticjob.operator.settings import Settings

_ERROR_BACKOFFS = (0.5, 1, 1)
"""Seconds between tries of one request. What stays refused ends Kopf soon; it is then started anew."""


class Feed(Protocol):
    """Takes what the watches see. Thread-safe; never blocks."""

    def see(self, resource: Resource, event_type: str | None, body: Body) -> None:
        """Take one event. `event_type` is ADDED, MODIFIED, DELETED, or None for an object that was listed."""


class NoDifferences(kopf.DiffBaseStorage):
    """Remembers nothing of objects: Kopf would copy each one whole to find out what has changed, which nobody asks."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[dicts.FieldSpec] | None = None) -> kopf.BodyEssence:
        """What is to be compared: nothing."""
        return kopf.BodyEssence({})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """What was handled last: nothing is known."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is written into objects."""


def kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    """Kopf's settings for a pure watcher."""
    result = kopf.OperatorSettings()
    result.posting.enabled = False
    result.peering.standalone = True
    # Resources are looked up once: no right to list CRDs or namespaces is needed.
    result.scanning.disabled = True
    result.networking.request_timeout = settings.api_timeout_seconds
    result.networking.error_backoffs = _ERROR_BACKOFFS
    result.persistence.finalizer = f"{GROUP}/operator"
    result.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    result.persistence.diffbase_storage = NoDifferences()
    result.queueing.idle_timeout = 1.0
    result.process.ultimate_exiting_timeout = None
    for resource in WATCHED:
        if selector := selector_of(resource):
            result.watching.label_selectors[resource.group, resource.version, resource.plural] = selector
    return result


def build_registry(feed: Feed, connect: Connect) -> kopf.OperatorRegistry:
    """The handlers, in a registry of their own."""

    async def login(**_: object) -> kopf.ConnectionInfo:
        return connection_info(await connect())

    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(login)
    for resource in WATCHED:
        kopf.on.event(
            resource.group, resource.version, resource.plural, registry=registry, id=f"see-{resource.plural}"
        )(_handler(feed, resource))
    return registry


def _handler(feed: Feed, resource: Resource) -> Callable[..., Awaitable[None]]:
    async def see(event: kopf.RawEvent, **_: object) -> None:
        feed.see(resource, event["type"], dict(event["object"]))

    return see


async def watch(
    feed: Feed, settings: Settings, *, connect: Connect, stop: asyncio.Event, started: asyncio.Event
) -> None:
    """Watch until `stop` is set; set `started` once the watches begin.

    Kopf cancels what else it finds on its event loop when it ends: give it a loop of its own.
    """
    await kopf.operator(
        registry=build_registry(feed, connect),
        settings=kopf_settings(settings),
        # Left out, Kopf would ask for the name of a user who need not have one in a container.
        identity=Identity(settings.pod_name),
        clusterwide=not settings.watch_namespaces,
        namespaces=settings.watch_namespaces,
        stop_flag=stop,
        ready_flag=started,
    )


def connection_info(configuration: Configuration) -> kopf.ConnectionInfo:
    """The client library's configuration in Kopf's terms."""
    token = (configuration.api_key or {}).get("BearerToken", "")
    scheme, _, value = token.rpartition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme.capitalize() or None,
        token=value or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )
