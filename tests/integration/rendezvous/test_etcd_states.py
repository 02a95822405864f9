"""All states below one prefix of a real etcd: listed in pages, and erased only as they were read."""

import uuid

import pytest

from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.backends import create_backend
from elasticjob.rendezvous.backends.etcd_states import EtcdStates, open_states
from elasticjob.rendezvous.parameters import RendezvousParameters
from tests.cluster.etcd_server import EtcdServer


class Place:
    """A prefix of one etcd."""

    def __init__(self, server: EtcdServer) -> None:
        self._server = server
        self._prefix = f"/{uuid.uuid4().hex}"

    def params(self, run_id: str) -> RendezvousParameters:
        return RendezvousParameters("etcd", self._server.endpoint, run_id, 1, 1, prefix=self._prefix)

    def states(self) -> EtcdStates:
        return open_states(self.params("any"))

    def backend(self, run_id: str) -> RendezvousBackend:
        return create_backend("etcd", self.params(run_id))[0]

    def keep(self, *run_ids: str) -> None:
        for run_id in run_ids:
            assert self.backend(run_id).set_state(b"x") is not None


@pytest.fixture
def place(etcd_v3: EtcdServer) -> Place:
    return Place(etcd_v3)


def test_names_come_in_pages_and_each_once(place: Place) -> None:
    place.keep("a", "b", "b/1", "c", "d")
    states = place.states()
    first = states.names(limit=2)
    second = states.names(after=first[-1], limit=2)
    assert [*first, *second, *states.names(after=second[-1], limit=2)] == ["a", "b", "b=2F1", "c", "d"]
    assert states.names(after="d", limit=2) == []


def test_a_name_that_is_gone_is_a_place_to_go_on_from(place: Place) -> None:
    place.keep("a", "c")
    assert place.states().names(after="b", limit=9) == ["c"]


def test_states_of_other_prefixes_and_stores_are_not_listed(place: Place, etcd_v3: EtcdServer) -> None:
    Place(etcd_v3).keep("elsewhere")
    create_backend("etcd", place.params("run"))[1].set("key", "value")
    assert place.states().names(limit=9) == []


def test_what_was_read_is_erased(place: Place) -> None:
    place.keep("a", "b")
    found = place.states().read("a")
    assert found is not None
    assert found[0] == b"x"
    assert place.states().erase(found[1])
    assert not place.states().erase(found[1])
    assert place.states().names(limit=9) == ["b"]


def test_what_was_written_since_it_was_read_stays(place: Place) -> None:
    place.keep("a")
    states, backend = place.states(), place.backend("a")
    found, stored = states.read("a"), backend.get_state()
    assert found is not None
    assert stored is not None
    backend.set_state(b"y", stored[1])
    assert not states.erase(found[1])
    newest = backend.get_state()
    assert newest is not None
    assert newest[0] == b"y"


def test_what_is_not_there_is_read_as_nothing(place: Place) -> None:
    assert place.states().read("nobody") is None
