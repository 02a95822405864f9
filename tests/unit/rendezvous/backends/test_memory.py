"""Which backends in memory share a state, and for how long. (What they do with it: see the conformance suite.)"""

import gc

from elasticjob.rendezvous.backends.memory import create_backend
from elasticjob.rendezvous.parameters import RendezvousParameters


def parameters(run_id: str = "run", endpoint: str = "here") -> RendezvousParameters:
    return RendezvousParameters("memory", endpoint, run_id, 1, 1)


def test_the_same_endpoint_and_run_share_state_and_store() -> None:
    one, one_store = create_backend(parameters())
    other, other_store = create_backend(parameters())
    one.set_state(b"x")
    one_store.set("a", "1")
    assert other.get_state() == one.get_state()
    assert other_store.get("a") == b"1"


def test_another_endpoint_or_run_shares_nothing() -> None:
    one, _ = create_backend(parameters())
    one.set_state(b"x")
    assert create_backend(parameters(endpoint="there"))[0].get_state() is None
    assert create_backend(parameters(run_id="other"))[0].get_state() is None


def test_a_state_ends_with_its_last_user_and_its_token_fits_no_later_one() -> None:
    backend, store = create_backend(parameters())
    result = backend.set_state(b"x")
    assert result is not None
    del backend, store
    gc.collect()
    again, _ = create_backend(parameters())
    assert again.get_state() is None
    assert again.set_state(b"y", result[1]) is None
