"""Where the states of runs are kept, as the operator reaches it.

A run's state is one ConfigMap in the namespace of its job, owned by the job, so that it goes with it; or, if the job
says so, it is kept by another backend of `elasticjob.rendezvous.backends`. States that can be listed there say whose
they are. Backends are called from threads; the ConfigMaps are reached through the operator's own asynchronous client,
which lives on the event loop of the host.
"""

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Any, TypeVar

from elasticjob.operator import constants, errors
from elasticjob.operator.hosting.state import BackendFactory
from elasticjob.operator.hosting.state_owner import OwnedStateBackend, StateOwner
from elasticjob.operator.ports import Body, ClusterPort
from elasticjob.operator.resources import CONFIG_MAPS
from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.backends import create_backend
from elasticjob.rendezvous.backends.etcd_states import EtcdStates, open_states
from elasticjob.rendezvous.backends.kubernetes import KubernetesRendezvousBackend
from elasticjob.rendezvous.backends.kubernetes_objects import AlreadyExists, Conflict, ThrottledError
from elasticjob.rendezvous.backends.options import FOR_EVER
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousStateError
from elasticjob.rendezvous.orders import RunOrders
from elasticjob.rendezvous.parameters import RendezvousParameters

KUBERNETES = "kubernetes"
ETCD = "etcd"
"""The one backend of these that can list states without reading them all."""
OTHER_DEFAULTS = {"ttl": str(FOR_EVER), "read_timeout": "5"}
"""Settings of other backends where the job says nothing. A state is written when the members change and at no other
time, so it must not expire; and a server that does not answer must not keep the threads that others need."""
LONGEST_READ_TIMEOUT = 30
"""Seconds; a job that asks for more gets this, since the threads are everybody's."""
BACKSTOP = 60.0
"""Seconds after which a thread stops waiting for a call whose own deadline is far below: the loop has ended."""
T = TypeVar("T")


class JobConfigMaps:
    """The ConfigMaps of one job, for `KubernetesRendezvousBackend`. Called from threads."""

    def __init__(self, cluster: ClusterPort, loop: asyncio.AbstractEventLoop, orders: RunOrders) -> None:
        self._cluster = cluster
        self._loop = loop
        self._namespace = orders.namespace
        self._job = orders.job
        self._run_id = orders.run_id
        self._has_been_here = False

    def read(self, name: str) -> Body | None:
        """The object, or None when there is none.

        One that an earlier job of this name has left, and that the garbage collector has not reached yet, is deleted.
        A run that has had a state itself deletes nothing: then a foreign object belongs to a later job.
        """
        try:
            found = self._wait(self._cluster.get(CONFIG_MAPS, namespace=self._namespace, name=name))
        except errors.NotFound:
            return None
        except errors.ClusterError as error:
            raise self._failed(name, error) from error
        if self._has_been_here or not self._is_left_over(found):
            self._has_been_here = True
            return found
        self._delete(name, found["metadata"]["uid"])
        return None

    def create(self, body: Body) -> Body:
        """Make an object."""
        try:
            created = self._wait(self._cluster.create(CONFIG_MAPS, body, namespace=self._namespace))
        except errors.AlreadyExists as error:
            raise AlreadyExists(str(error)) from error
        except errors.ClusterError as error:
            raise self._failed(body["metadata"]["name"], error) from error
        self._has_been_here = True
        return created

    def replace(self, body: Body) -> Body:
        """Write an object that was read before."""
        try:
            return self._wait(self._cluster.replace(CONFIG_MAPS, body))
        except (errors.Conflict, errors.NotFound) as error:
            raise Conflict(str(error)) from error
        except errors.ClusterError as error:
            raise self._failed(body["metadata"]["name"], error) from error

    def _delete(self, name: str, uid: str) -> None:
        try:
            self._wait(self._cluster.delete(CONFIG_MAPS, namespace=self._namespace, name=name, uid=uid))
        except (errors.Conflict, errors.NotFound):
            return
        except errors.ClusterError as error:
            raise self._failed(name, error) from error

    def _is_left_over(self, body: Body) -> bool:
        owners = body["metadata"].get("ownerReferences") or ()
        return any(
            owner.get("kind") == constants.KIND and owner.get("name") == self._job and owner.get("uid") != self._run_id
            for owner in owners
        )

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result(BACKSTOP)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError) as error:
            future.cancel()
            raise RendezvousConnectionError("the event loop does not answer") from error

    def _failed(self, name: str, error: errors.ClusterError) -> Exception:
        where = f"ConfigMap {self._namespace}/{name}"
        if isinstance(error, errors.TooManyRequests):
            return ThrottledError(f"{where}: {error}", retry_after=error.retry_after)
        if isinstance(error, errors.Invalid):
            return RendezvousStateError(f"{where}: {error}")
        return RendezvousConnectionError(f"{where}: {error}")


def backend_factory(cluster: ClusterPort, loop: asyncio.AbstractEventLoop, *, installation: str) -> BackendFactory:
    """Makes the backend that a run's orders name. The cluster's client must belong to the loop."""

    def make(orders: RunOrders) -> RendezvousBackend:
        if orders.backend != KUBERNETES:
            backend = create_backend(orders.backend, _parameters(orders))[0]
            owner = StateOwner(installation=installation, namespace=orders.namespace, job=orders.job)
            return OwnedStateBackend(backend, owner) if stays_behind(orders) else backend
        return KubernetesRendezvousBackend(
            JobConfigMaps(cluster, loop, orders),
            orders.run_id,
            name=f"{orders.job}-rendezvous",
            labels={
                constants.LABEL_MANAGED_BY: constants.MANAGED_BY,
                constants.LABEL_JOB_NAME: orders.job,
                constants.LABEL_JOB_UID: orders.run_id,
            },
            owner_references=[_owner(orders)],
        )

    return make


def _owner(orders: RunOrders) -> Body:
    return {
        "apiVersion": constants.API_VERSION,
        "kind": constants.KIND,
        "name": orders.job,
        "uid": orders.run_id,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def stays_behind(orders: RunOrders) -> bool:
    """Whether the state of a run stays where it is when its job goes, and is to be looked for there."""
    return orders.backend == ETCD


def states_beside(orders: RunOrders) -> EtcdStates:
    """All states in the place that a run's orders name; its state `stays_behind`."""
    return open_states(_parameters(orders))


def _parameters(orders: RunOrders) -> RendezvousParameters:
    conf = {**OTHER_DEFAULTS, **orders.backend_conf}
    endpoint = conf.pop("endpoint", "")
    conf["read_timeout"] = _bounded(conf["read_timeout"])
    largest = max(orders.min_nodes, orders.max_nodes)
    params = RendezvousParameters(orders.backend, endpoint, orders.run_id, orders.min_nodes, largest)
    # Not as keyword arguments: the user's names are anything.
    params.config.update(conf)
    return params


def _bounded(read_timeout: str) -> str:
    # What is no number is for the backend to refuse.
    is_longer = read_timeout.strip().isdecimal() and float(read_timeout) > LONGEST_READ_TIMEOUT
    return str(LONGEST_READ_TIMEOUT) if is_longer else read_timeout
