"""Marks the operator's own pod while it leads, so that the Service of the rendezvous finds it.

A standby is as ready as the leader, so readiness cannot tell them apart; the Service selects the label instead. Every
process takes a label away that an earlier run of its container left behind. Who takes over from a leader that is silent
takes its label away as well: else half of the calls would go to a machine that is gone, until Kubernetes finds out.
"""

import asyncio
import contextlib
import logging

from elasticjob.operator.errors import ClusterError, NotFound, NotLeader
from elasticjob.operator.ports import ClusterPort
from elasticjob.operator.resources import PODS

_log = logging.getLogger(__name__)

LABEL = "elasticjob.dev/leader"
RETRY_SECONDS = 2.0


class LeaderLabel:
    """Keeps the label of one pod as it should be.

    Args:
        fenced: By which other pods are written: only while this process leads.
    """

    def __init__(self, *, cluster: ClusterPort, fenced: ClusterPort, namespace: str, pod: str) -> None:
        self._cluster = cluster
        self._fenced = fenced
        self._namespace = namespace
        self._pod = pod
        self._wanted = False
        self._silent = ""
        self._changed = asyncio.Event()

    def show(self, *, leads: bool, instead_of: str = "") -> None:
        """Have the label set or taken away soon. When it is set, the pod that led before loses it, if one is named."""
        self._wanted = leads
        self._silent = instead_of if leads and instead_of != self._pod else ""
        self._changed.set()

    async def run(self) -> None:
        """Keep the label true until cancelled."""
        told = False
        while True:
            self._changed.clear()
            try:
                await self._write(self._cluster, self._pod, leads=self._wanted)
                await self._silence()
            except ClusterError as error:
                if not told:
                    _log.warning("cannot label the operator's own pod %s: %s", self._pod, error)
                told = True
                await asyncio.sleep(RETRY_SECONDS)
            else:
                told = False
                await self._changed.wait()

    async def _silence(self) -> None:
        if self._silent:
            with contextlib.suppress(NotLeader):
                await self._write(self._fenced, self._silent, leads=False)
            self._silent = ""

    async def _write(self, cluster: ClusterPort, pod: str, *, leads: bool) -> None:
        patch = {"metadata": {"labels": {LABEL: "true" if leads else None}}}
        try:
            await cluster.patch(PODS, patch, namespace=self._namespace, name=pod)
        except NotFound:
            return  # not run by Kubernetes, or gone: nobody has to find this process
