"""The state of a run in one key of etcd's v3 API (any current etcd).

The token is the key and its `mod_revision`, compared inside one transaction with the write. The key hangs on a lease
that each writer keeps for itself and renews as it writes, so that the state lives `ttl` seconds beyond the last write.
Nothing is sent before the first read or write, and a lost race is not retried.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.backends.etcd_client import EtcdClient, KeyValue, Swap
from elasticjob.rendezvous.backends.keys import escape, key_segment
from elasticjob.rendezvous.backends.options import DEFAULT_TTL, FOR_EVER, MAX_TTL, bounded_int, etcd_options
from elasticjob.rendezvous.backends.values import check_new_state, check_stored_state
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.store import Data, Store, cas_delay, parse_counter, to_bytes

DEFAULT_PREFIX = "/elasticjob"
MAX_STATE_BYTES = 1_000_000
"""Greatest state, in bytes; etcd refuses requests of more than 1.5 MiB."""


@dataclass(frozen=True, kw_only=True)
class EtcdToken:
    """Fencing token of a key of the v3 API."""

    key: str
    mod_revision: int


def state_directory(prefix: str) -> str:
    """What the keys of all states start with."""
    return f"{prefix.rstrip('/')}/rendezvous/"


class EtcdRendezvousBackend(RendezvousBackend):
    """Holds the state in one key."""

    def __init__(self, client: EtcdClient, run_id: str, *, prefix: str = DEFAULT_PREFIX) -> None:
        """Use a client that exists.

        Args:
            client: Operations on the server.
            run_id: Any text; unusual characters are escaped in the key.
            prefix: What all keys of this library start with.

        Raises:
            ValueError: The run id cannot be used.
        """
        self._client = client
        self._key = state_directory(prefix) + key_segment(run_id)
        self._where = f"key {self._key} in etcd at {client.options.url}"

    @property
    def name(self) -> str:
        """See base class."""
        return "etcd"

    def get_state(self) -> tuple[bytes, Token] | None:
        """See base class."""
        return self._decode(self._client.get(self._key)[0])

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """See base class."""
        check_new_state(state, where=self._where, limit=MAX_STATE_BYTES)
        if token is not None and not (isinstance(token, EtcdToken) and token.key == self._key):
            return self._lost(self.get_state())
        revision = None if token is None else token.mod_revision
        swap = self._client.swap(self._key, state, mod_revision=revision)
        if not swap.done:
            return self._lost(self._decode(swap.stored))
        return state, EtcdToken(key=self._key, mod_revision=swap.revision), True

    def delete_state(self) -> None:
        """See `ErasableState`."""
        self._client.delete(self._key)

    def _decode(self, found: KeyValue | None) -> tuple[bytes, Token] | None:
        if found is None:
            return None
        state = check_stored_state(found.value, where=self._where)
        return state, EtcdToken(key=self._key, mod_revision=found.mod_revision)

    @staticmethod
    def _lost(stored: tuple[bytes, Token] | None) -> tuple[bytes, Token, bool] | None:
        return None if stored is None else (*stored, False)


class EtcdV3Store(Store):
    """A store of one run on etcd's v3 API. Each wait watches the one key it needs."""

    def __init__(self, client: EtcdClient, run_id: str, *, prefix: str = DEFAULT_PREFIX) -> None:
        """Use a client that exists; see `EtcdRendezvousBackend`."""
        super().__init__()
        self._client = client
        self._prefix = f"{prefix.rstrip('/')}/store/{key_segment(run_id)}/"

    def set(self, key: Data, value: Data) -> None:
        """See base class."""
        self._client.put(self._path(key), to_bytes(value))

    def add(self, key: Data, num: int) -> int:
        """See base class."""
        found, _ = self._client.get(self._path(key))
        while True:
            total = num if found is None else parse_counter(key, found.value) + num
            swap = self._swap(key, found, str(total).encode())
            if swap.done:
                return total
            found = swap.stored
            cas_delay()

    def compare_set(self, key: Data, expected: Data, desired: Data) -> bytes:
        """See base class."""
        found, _ = self._client.get(self._path(key))
        while True:
            if (b"" if found is None else found.value) != to_bytes(expected):
                return to_bytes(expected) if found is None else found.value
            swap = self._swap(key, found, to_bytes(desired))
            if swap.done:
                return to_bytes(desired)
            found = swap.stored

    def check(self, keys: Iterable[Data]) -> bool:
        """See base class."""
        return all(self._client.get(self._path(key))[0] is not None for key in keys)

    def delete_key(self, key: Data) -> bool:
        """See base class."""
        return self._client.delete(self._path(key))

    def num_keys(self) -> int:
        """See base class."""
        return self._client.count(self._prefix)

    def _await_value(self, key: Data, deadline: float) -> bytes | None:
        while True:
            found, revision = self._client.get(self._path(key))
            if found is not None:
                return found.value
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            self._client.wait_for_change(self._path(key), after=revision, timeout=remaining)

    def _swap(self, key: Data, found: KeyValue | None, value: bytes) -> Swap:
        return self._client.swap(self._path(key), value, mod_revision=None if found is None else found.mod_revision)

    def _path(self, key: Data) -> str:
        return self._prefix + escape(to_bytes(key))


def create_backend(params: RendezvousParameters) -> tuple[EtcdRendezvousBackend, Store]:
    """Make a backend and a store on an etcd server.

    Options: `protocol` (http, https), `read_timeout` (seconds a request, 60), `ssl_cert`, `ssl_cert_key`, `ca_cert`
    (paths), `prefix` (what all keys start with, `/elasticjob`), `ttl` (seconds that the data of a run outlives its
    last write, 7200; 0 for ever).

    Raises:
        ValueError: An option or the run id cannot be used.
        ModuleNotFoundError: etcd3gw is not installed.
    """
    ttl = bounded_int(params, "ttl", DEFAULT_TTL, minimum=FOR_EVER, maximum=MAX_TTL)
    prefix = str(params.get("prefix", DEFAULT_PREFIX))
    client = EtcdClient(etcd_options(params), ttl=ttl)
    return (
        EtcdRendezvousBackend(client, params.run_id, prefix=prefix),
        EtcdV3Store(client, params.run_id, prefix=prefix),
    )
