"""Marks the operator's own pod while it leads, so that the Service of the rendezvous finds it.

A standby is as ready as the leader, so readiness cannot tell them apart; the Service selects the label instead. Every
process takes a label away that an earlier run of its container left behind.
"""

import asyncio
import logging

from elasticjob.operator.errors import ClusterError, NotFound
from elasticjob.operator.ports import ClusterPort
from elasticjob.operator.resources import PODS

_log = logging.getLogger(__name__)

LABEL = "elasticjob.dev/leader"
RETRY_SECONDS = 2.0


class LeaderLabel:
    """Keeps the label of one pod as it should be."""

    def __init__(self, *, cluster: ClusterPort, namespace: str, pod: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._pod = pod
        self._wanted = False
        self._changed = asyncio.Event()

    def show(self, *, leads: bool) -> None:
        """Have the label set or taken away soon."""
        self._wanted = leads
        self._changed.set()

    async def run(self) -> None:
        """Keep the label true until cancelled."""
        told = False
        while True:
            self._changed.clear()
            try:
                await self._write(leads=self._wanted)
            except ClusterError as error:
                if not told:
                    _log.warning("cannot label the operator's own pod %s: %s", self._pod, error)
                told = True
                await asyncio.sleep(RETRY_SECONDS)
            else:
                told = False
                await self._changed.wait()

    async def _write(self, *, leads: bool) -> None:
        patch = {"metadata": {"labels": {LABEL: "true" if leads else None}}}
        try:
            await self._cluster.patch(PODS, patch, namespace=self._namespace, name=self._pod)
        except NotFound:
            return  # not run by Kubernetes: nobody has to find this process
