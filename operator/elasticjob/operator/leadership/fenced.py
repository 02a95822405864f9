"""The API port of a part that may act only while this process leads.

A write is not started without leadership, and its deadline never lies beyond the leadership's end: whoever takes over
later finds no call of ours still under way. What a paused process had already handed to the network is caught by the
conditions of the writes themselves: resource versions, UIDs, and pod names that are never used twice.
"""

from collections.abc import Mapping
from typing import Any

from elasticjob.operator.leadership.elector import Leadership
from elasticjob.operator.ports import Body, ClusterPort, ObjectList, Resource


class FencedCluster:
    """A `ClusterPort` whose writes raise `NotLeader` unless this process leads."""

    def __init__(self, cluster: ClusterPort, *, leadership: Leadership, timeout: float) -> None:
        self._cluster = cluster
        self._leadership = leadership
        self._timeout = timeout

    async def get(self, resource: Resource, *, namespace: str | None, name: str, timeout: float | None = None) -> Body:
        """Read one object; needs no leadership."""
        return await self._cluster.get(resource, namespace=namespace, name=name, timeout=timeout)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        label_selector: str = "",
        timeout: float | None = None,
    ) -> ObjectList:
        """Read all objects; needs no leadership."""
        return await self._cluster.list(resource, namespace=namespace, label_selector=label_selector, timeout=timeout)

    async def create(
        self, resource: Resource, body: Body, *, namespace: str | None, timeout: float | None = None
    ) -> Body:
        """Create an object."""
        return await self._cluster.create(resource, body, namespace=namespace, timeout=self._deadline(timeout))

    async def replace(
        self, resource: Resource, body: Body, *, subresource: str = "", timeout: float | None = None
    ) -> Body:
        """Replace an object that was read before."""
        return await self._cluster.replace(resource, body, subresource=subresource, timeout=self._deadline(timeout))

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
        return await self._cluster.patch(
            resource,
            patch,
            namespace=namespace,
            name=name,
            subresource=subresource,
            timeout=self._deadline(timeout),
        )

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
        """Delete exactly the object with this UID."""
        return await self._cluster.delete(
            resource,
            namespace=namespace,
            name=name,
            uid=uid,
            grace_period=grace_period,
            timeout=self._deadline(timeout),
        )

    async def get_raw(self, path: str, *, timeout: float | None = None) -> Body:
        """Read a non-resource URL; needs no leadership."""
        return await self._cluster.get_raw(path, timeout=timeout)

    def _deadline(self, timeout: float | None) -> float:
        return min(self._leadership.require(), self._timeout if timeout is None else timeout)
