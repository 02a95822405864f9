"""The ConfigMaps of a job behind the backend: whose they are, and how failures are told apart."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from elasticjob.operator import errors
from elasticjob.operator.hosting import state_backends
from elasticjob.operator.hosting.state_backends import OTHER_DEFAULTS, JobConfigMaps, backend_factory, stays_behind
from elasticjob.operator.hosting.state_owner import OwnedStateBackend
from elasticjob.operator.ports import Body
from elasticjob.rendezvous.backend import ErasableState
from elasticjob.rendezvous.backends import create_backend
from elasticjob.rendezvous.backends.kubernetes_objects import AlreadyExists, Conflict, ThrottledError
from elasticjob.rendezvous.backends.options import FOR_EVER
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousStateError
from elasticjob.rendezvous.parameters import RendezvousParameters
from tests.unit.operator.hosted import orders


class Api:
    """ConfigMaps in memory; `trouble` is raised by the next calls."""

    def __init__(self) -> None:
        self.stored: Body | None = None
        self.trouble: Exception | None = None
        self.deleted: list[str] = []

    async def get(self, resource: object, *, namespace: str, name: str, timeout: float | None = None) -> Body:
        self._fail()
        if self.stored is None:
            raise errors.NotFound("none")
        return self.stored

    async def create(self, resource: object, body: Body, *, namespace: str, timeout: float | None = None) -> Body:
        self._fail()
        if self.stored is not None:
            raise errors.AlreadyExists("taken")
        self.stored = {**body, "metadata": {**body["metadata"], "uid": "1", "resourceVersion": "1"}}
        return self.stored

    async def replace(self, resource: object, body: Body, *, timeout: float | None = None) -> Body:
        self._fail()
        self.stored = body
        return body

    async def delete(
        self, resource: object, *, namespace: str, name: str, uid: str, timeout: float | None = None
    ) -> Body:
        self._fail()
        self.deleted.append(uid)
        self.stored = None
        return {}

    def _fail(self) -> None:
        if self.trouble is not None:
            raise self.trouble


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own, as the host's is for the threads that keep states."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


def owned_by(uid: str) -> Body:
    owner = {"apiVersion": "elasticjob.dev/v1alpha1", "kind": "ElasticJob", "name": "digits", "uid": uid}
    metadata = {"name": "digits-rendezvous", "uid": "of-" + uid, "resourceVersion": "7", "ownerReferences": [owner]}
    return {"metadata": metadata, "binaryData": {"state": "e30="}}


def maps(api: Any, loop: asyncio.AbstractEventLoop) -> JobConfigMaps:
    return JobConfigMaps(api, loop, orders(1))


def test_what_an_earlier_job_left_behind_is_deleted_and_counts_as_nothing(loop: asyncio.AbstractEventLoop) -> None:
    api = Api()
    api.stored = owned_by("earlier")
    assert maps(api, loop).read("digits-rendezvous") is None
    assert api.deleted == ["of-earlier"]


def test_the_state_of_a_later_job_is_never_deleted(loop: asyncio.AbstractEventLoop) -> None:
    api = Api()
    mine = maps(api, loop)
    mine.create({"metadata": {"name": "digits-rendezvous"}})
    api.stored = owned_by("later")
    assert mine.read("digits-rendezvous") == owned_by("later")
    assert api.deleted == []


def test_objects_of_nobody_are_left_alone(loop: asyncio.AbstractEventLoop) -> None:
    api = Api()
    api.stored = {"metadata": {"name": "digits-rendezvous", "uid": "x"}}
    assert maps(api, loop).read("digits-rendezvous") == api.stored
    assert api.deleted == []


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (errors.Unavailable("no answer within 10 seconds"), RendezvousConnectionError),
        (errors.Forbidden("no access"), RendezvousConnectionError),
        (errors.NotLeader("not the leader"), RendezvousConnectionError),
        (errors.TooManyRequests("slow down", retry_after=3), ThrottledError),
        (errors.Invalid("too large"), RendezvousStateError),
    ],
)
def test_failures_are_told_apart_and_name_the_object(
    loop: asyncio.AbstractEventLoop, trouble: Exception, told: type[Exception]
) -> None:
    api = Api()
    api.trouble = trouble
    body: Body = {"metadata": {"name": "digits-rendezvous", "uid": "1", "resourceVersion": "1"}}
    mine = maps(api, loop)
    where = "ConfigMap train/digits-rendezvous"
    with pytest.raises(told, match=where):
        mine.read("digits-rendezvous")
    for write in (mine.create, mine.replace):
        with pytest.raises(told, match=where):
            write(body)


@pytest.mark.parametrize("trouble", [errors.Conflict("changed"), errors.NotFound("gone")])
def test_a_write_to_an_object_that_changed_or_is_gone_is_a_conflict(
    loop: asyncio.AbstractEventLoop, trouble: Exception
) -> None:
    api = Api()
    api.trouble = trouble
    with pytest.raises(Conflict):
        maps(api, loop).replace({"metadata": {"name": "digits-rendezvous"}})


def test_a_name_that_is_taken_is_told(loop: asyncio.AbstractEventLoop) -> None:
    api = Api()
    api.stored = owned_by("somebody")
    with pytest.raises(AlreadyExists):
        maps(api, loop).create({"metadata": {"name": "digits-rendezvous"}})


def test_orders_name_the_backend(loop: asyncio.AbstractEventLoop) -> None:
    api: Any = Api()
    make = backend_factory(api, loop, installation="lease-1")
    assert make(orders(1)).name == "kubernetes"
    assert make(orders(1, backend="memory")).name == "memory"
    with pytest.raises(ValueError, match="no rendezvous backend 'punch-cards'"):
        make(orders(1, backend="punch-cards"))


def test_settings_of_a_job_may_have_any_name(loop: asyncio.AbstractEventLoop) -> None:
    api: Any = Api()
    conf = {"run_id": "another", "backend": "x", "self": "y"}
    assert (
        backend_factory(api, loop, installation="lease-1")(orders(1, backend="memory", backend_conf=conf)).name
        == "memory"
    )


@pytest.mark.parametrize("backend", ["etcd", "etcd-v2"])
def test_a_setting_that_cannot_be_used_is_named(loop: asyncio.AbstractEventLoop, backend: str) -> None:
    api: Any = Api()
    conf = {"endpoint": "etcd:2379", "protocol": "gopher"}
    with pytest.raises(ValueError, match="protocol must be one of http, https, not 'gopher'"):
        backend_factory(api, loop, installation="lease-1")(orders(1, backend=backend, backend_conf=conf))


@pytest.mark.parametrize("backend", ["etcd", "etcd-v2"])
def test_states_in_etcd_stay_until_they_are_erased(loop: asyncio.AbstractEventLoop, backend: str) -> None:
    api: Any = Api()
    made = backend_factory(api, loop, installation="lease-1")(
        orders(1, backend=backend, backend_conf={"endpoint": "etcd:2379"})
    )
    assert isinstance(made, ErasableState)
    assert isinstance(made, OwnedStateBackend) == stays_behind(orders(1, backend=backend)) == (backend == "etcd")
    assert OTHER_DEFAULTS["ttl"] == str(FOR_EVER)


@pytest.mark.parametrize(
    ("conf", "told"),
    [({}, "5"), ({"read_timeout": "7"}, "7"), ({"read_timeout": " 3600 "}, "30"), ({"read_timeout": "soon"}, "soon")],
)
def test_no_job_holds_a_thread_for_as_long_as_it_likes(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], told: str
) -> None:
    seen: list[str] = []

    def create(name: str, params: RendezvousParameters) -> tuple[Any, Any]:
        seen.append(params.get("read_timeout"))
        return create_backend("memory", params)

    monkeypatch.setattr(state_backends, "create_backend", create)
    api: Any = Api()
    backend_factory(api, loop, installation="lease-1")(orders(1, backend="memory", backend_conf=conf))
    assert seen == [told]
