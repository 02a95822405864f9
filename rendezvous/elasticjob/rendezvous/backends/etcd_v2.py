"""The state of a run in one key of etcd's old v2 API, for servers that still offer it.

The token is the key and its `modifiedIndex`, which the server never gives twice; a write names it as `prevIndex`, the
first one demands `prevExist=false`. The key lives `ttl` seconds beyond its last write. The value is base64, as the API
takes text only. Nothing is sent before the first read or write.
"""

import time
from dataclasses import dataclass

from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.backends.etcd_v2_keys import EtcdV2Keys, Node, connect
from elasticjob.rendezvous.backends.extras import ThirdParty
from elasticjob.rendezvous.backends.keys import key_segment
from elasticjob.rendezvous.backends.options import DEFAULT_TTL, FOR_EVER, MAX_TTL, bounded_int, etcd_options
from elasticjob.rendezvous.backends.values import (
    check_new_state,
    check_stored_state,
    decode_base64,
    encode_base64,
)
from elasticjob.rendezvous.etcd_store import EtcdStore
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.store import Store

DEFAULT_PREFIX = "/elasticjob"
MAX_STATE_BYTES = 1_000_000
"""Greatest state, in bytes: base64 and form encoding must stay below etcd's request limit of 1.5 MiB."""

# The store's directory gets its new time to live with a write of the state, but not with each.
_REFRESH_PARTS = 10


@dataclass(frozen=True, kw_only=True)
class EtcdV2Token:
    """Fencing token of a key of the v2 API."""

    key: str
    index: int


class EtcdV2RendezvousBackend(RendezvousBackend):
    """Holds the state in one key."""

    def __init__(
        self,
        client: ThirdParty,
        run_id: str,
        key_prefix: str | None = None,
        ttl: int | None = None,
        *,
        store_directory: str | None = None,
        expires: bool = True,
    ) -> None:
        """Use a client that exists.

        Args:
            client: An `etcd.Client`.
            run_id: Any text; unusual characters are escaped in the key.
            key_prefix: The directory of the key.
            ttl: Seconds that the state outlives its last write; two hours unless given.
            store_directory: A directory that is to live as long as the state.
            expires: Whether the state is gone one day if nobody writes it.

        Raises:
            ValueError: The run id cannot be used.
            ModuleNotFoundError: python-etcd is not installed.
        """
        self._key = f"/{(key_prefix or '').strip('/')}/{key_segment(run_id)}".replace("//", "/")
        self._keys = EtcdV2Keys(client)
        self._lifetime = ttl if ttl and ttl > 0 else DEFAULT_TTL
        self._ttl = self._lifetime if expires else None
        self._store_directory = store_directory if expires else None
        self._refresh_due = 0.0

    @property
    def name(self) -> str:
        """See base class."""
        return "etcd-v2"

    def get_state(self) -> tuple[bytes, Token] | None:
        """See base class."""
        node = self._keys.read(self._key)
        return None if node is None else self._decode(node)

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """See base class."""
        check_new_state(state, where=self._where, limit=MAX_STATE_BYTES)
        node = self._write(encode_base64(state), token)
        if node is None:
            stored = self.get_state()
            return None if stored is None else (*stored, False)
        self._keep_store()
        return state, EtcdV2Token(key=self._key, index=node.index), True

    def delete_state(self) -> None:
        """See `ErasableState`."""
        self._keys.delete(self._key)

    @property
    def _where(self) -> str:
        return f"key {self._key} in etcd at {self._keys.endpoint}"

    def _write(self, value: str, token: Token | None) -> Node | None:
        if token is None:
            return self._keys.create(self._key, value, ttl=self._ttl)
        if not isinstance(token, EtcdV2Token) or token.key != self._key:
            return None
        return self._keys.replace(self._key, value, index=token.index, ttl=self._ttl)

    def _decode(self, node: Node) -> tuple[bytes, Token]:
        state = check_stored_state(decode_base64(node.value, where=self._where), where=self._where)
        return state, EtcdV2Token(key=self._key, index=node.index)

    def _keep_store(self) -> None:
        if self._store_directory is None or time.monotonic() < self._refresh_due:
            return
        if not self._keys.refresh(self._store_directory, ttl=self._lifetime, directory=True):
            self._keys.make_directory(self._store_directory, ttl=self._lifetime)
        self._refresh_due = time.monotonic() + self._lifetime / _REFRESH_PARTS


def create_backend(params: RendezvousParameters) -> tuple[EtcdV2RendezvousBackend, Store]:
    """Make a backend and a store on an etcd server that offers the v2 API.

    Options: `protocol` (http, https), `read_timeout` (seconds a request, 60), `ssl_cert`, `ssl_cert_key`, `ca_cert`
    (paths), `prefix` (directory of all keys, `/elasticjob`), `ttl` (seconds that the data of a run outlives its last
    write, 7200; 0 for ever).

    Raises:
        ValueError: An option or the run id cannot be used.
        ModuleNotFoundError: python-etcd is not installed.
    """
    options = etcd_options(params)
    ttl = bounded_int(params, "ttl", DEFAULT_TTL, minimum=FOR_EVER, maximum=MAX_TTL)
    prefix = str(params.get("prefix", DEFAULT_PREFIX)).rstrip("/")
    store_directory = f"{prefix}/store/{key_segment(params.run_id)}"
    client = connect(options)
    backend = EtcdV2RendezvousBackend(
        client,
        params.run_id,
        f"{prefix}/rendezvous",
        ttl,
        store_directory=store_directory,
        expires=ttl != FOR_EVER,
    )
    return backend, EtcdStore(client, store_directory)
