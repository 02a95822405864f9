"""The store of a round on etcd's v2 API, as the legacy etcd rendezvous hands it out.

Keys and values are base64, since the API takes text only; `/` and `+`, which mean something in a path, are replaced by
`~` and `-`. A directory that is not there is an empty store. Each wait watches the one key it needs, so that writes
elsewhere wake nobody up, and starts right after the index of a fresh read, so that the server still knows it.
"""

import base64
import time
from collections.abc import Iterable
from datetime import timedelta

from elasticjob.rendezvous.backends.etcd_v2_keys import EtcdV2Keys, Node
from elasticjob.rendezvous.backends.extras import ThirdParty
from elasticjob.rendezvous.backends.values import decode_base64, encode_base64
from elasticjob.rendezvous.store import Data, Store, cas_delay, parse_counter, to_bytes

_PATH_SAFE = b"-~"
_EMPTY_KEY = "="  # no base64 text is this short


class EtcdStore(Store):
    """A store below one directory of etcd."""

    def __init__(self, etcd_client: ThirdParty, etcd_store_prefix: str, timeout: timedelta | None = None) -> None:
        """Use a client that exists.

        Args:
            etcd_client: An `etcd.Client` of python-etcd.
            etcd_store_prefix: The directory of the keys; need not exist.
            timeout: How long reads wait for a key; 5 minutes unless given.
        """
        super().__init__(timeout)
        self.client = etcd_client
        self.prefix = etcd_store_prefix if etcd_store_prefix.endswith("/") else f"{etcd_store_prefix}/"
        self._keys = EtcdV2Keys(etcd_client)

    def set(self, key: Data, value: Data) -> None:
        """Write a value; key and value may be `str` or `bytes`."""
        self._keys.put(self._path(key), encode_base64(to_bytes(value)))

    def add(self, key: Data, num: int) -> int:
        """Atomically add to a decimal number, which is 0 if nobody has written it, and return the sum."""
        while True:
            node = self._keys.read(self._path(key))
            total = num if node is None else parse_counter(key, self._decode(node)) + num
            if self._swap(key, node, str(total).encode()):
                return total
            cas_delay()

    def compare_set(self, key: Data, expected: Data, desired: Data) -> bytes:
        """See base class."""
        while True:
            node = self._keys.read(self._path(key))
            current = None if node is None else self._decode(node)
            if (current or b"") != to_bytes(expected):
                return to_bytes(expected) if current is None else current
            if self._swap(key, node, to_bytes(desired)):
                return to_bytes(desired)
            cas_delay()

    def check(self, keys: Iterable[Data]) -> bool:
        """Whether all keys are there now, without waiting."""
        return all(self._keys.read(self._path(key)) is not None for key in keys)

    def delete_key(self, key: Data) -> bool:
        """See base class."""
        return self._keys.delete(self._path(key))

    def num_keys(self) -> int:
        """See base class."""
        return len(self._keys.names_in(self.prefix))

    def _await_value(self, key: Data, deadline: float) -> bytes | None:
        path = self._path(key)
        while True:
            node, index = self._keys.lookup(path)
            if node is not None:
                return self._decode(node)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            self._keys.wait_for_change(path, after=index, timeout=remaining)

    def _swap(self, key: Data, old: Node | None, value: bytes) -> bool:
        return self._keys.swap(self._path(key), old, encode_base64(value)) is not None

    def _path(self, key: Data) -> str:
        return self.prefix + (base64.b64encode(to_bytes(key), altchars=_PATH_SAFE).decode() or _EMPTY_KEY)

    def _decode(self, node: Node) -> bytes:
        return decode_base64(node.value, where=f"key {node.key} in etcd at {self._keys.endpoint}")
