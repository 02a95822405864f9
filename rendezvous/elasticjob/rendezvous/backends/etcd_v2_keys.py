"""The few operations on etcd's v2 API that this library needs, with its own errors instead of python-etcd's.

"The key is not there", "it is there already" and "it has changed" are answers and come back as None or False. All else
is an error: `RendezvousConnectionError` when no answer came, `RendezvousStateError` when a file is where a directory
should be or the other way round. Nothing is retried here. python-etcd is imported when the first object is made.

The v2 API keeps only the last 1,000 events. A wait therefore always starts right after the index of a fresh read, and
when the server has forgotten that index already, the wait just ends and the caller reads again.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from elasticjob.rendezvous.backends.extras import ThirdParty, require
from elasticjob.rendezvous.backends.options import EtcdOptions, url_host
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousStateError

_NO_V2_API = "404 page not found"
_TRANSPORT = "elasticjob.rendezvous.backends.etcd_transport"
_LONGEST_QUOTE = 200
_LONGEST_NUMBER = 20
_SHORTEST_WAIT = 0.001  # python-etcd takes 0 for "for ever"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A key as it was read or written.

    Args:
        value: None for a directory.
        index: When the key was last modified.
        etcd_index: How far the server was when it answered: the place to start waiting from.
    """

    key: str
    value: str | None
    index: int
    etcd_index: int


def connect(options: EtcdOptions) -> ThirdParty:
    """A python-etcd client. Sends nothing yet.

    It talks to the one endpoint that was given, usually a Service: the members' own addresses, which python-etcd would
    fall back to, need not be reachable from here.
    """
    etcd = require("etcd", needed_by="the etcd v2 API", extra="etcd")
    cert = (options.ssl_cert, options.ssl_cert_key) if options.ssl_cert_key else options.ssl_cert
    client = etcd.Client(
        host=url_host(options.host),
        port=options.port,
        protocol=options.protocol,
        read_timeout=options.read_timeout,
        cert=cert,
        ca_cert=options.ca_cert,
        allow_redirect=False,
    )
    importlib.import_module(_TRANSPORT).bound(client.http)
    # urllib3 would repeat a request three times behind our back, each with the full time-out.
    client.http.connection_pool_kw["retries"] = False
    return client


class EtcdV2Keys:
    """Operations on the keys of one etcd server."""

    def __init__(self, client: ThirdParty) -> None:
        """Use a client that exists, an `etcd.Client`."""
        self.client = client
        self._etcd = require("etcd", needed_by="the etcd v2 API", extra="etcd")

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return str(self.client.base_uri)

    def read(self, key: str) -> Node | None:
        """Read a key; None when it is not there."""
        return self.lookup(key)[0]

    def lookup(self, key: str) -> tuple[Node | None, int]:
        """Read a key, and how far the server was when it answered, which it also says when the key is not there."""
        try:
            node = self._node(self._call(key, lambda: self.client.read(key)))
        except self._etcd.EtcdKeyNotFound as error:
            return None, self._number(error.payload["index"])
        return node, node.etcd_index

    def create(self, key: str, value: str, *, ttl: int | None = None) -> Node | None:
        """Write a key that must not be there yet; None when it is."""
        try:
            return self._node(self._call(key, lambda: self.client.write(key, value, ttl=ttl, prevExist=False)))
        except self._etcd.EtcdAlreadyExist:
            return None

    def replace(self, key: str, value: str, *, index: int, ttl: int | None = None) -> Node | None:
        """Write a key if it was last modified at `index`; None when it was not, or is gone."""
        try:
            return self._node(self._call(key, lambda: self.client.write(key, value, ttl=ttl, prevIndex=index)))
        except (self._etcd.EtcdCompareFailed, self._etcd.EtcdKeyNotFound):
            return None

    def swap(self, key: str, old: Node | None, value: str, *, ttl: int | None = None) -> Node | None:
        """Write a key if it is still as it was read: `old`, or not there. None when it is not."""
        if old is None:
            return self.create(key, value, ttl=ttl)
        return self.replace(key, value, index=old.index, ttl=ttl)

    def put(self, key: str, value: str, *, ttl: int | None = None) -> Node:
        """Write a key in any case."""
        return self._node(self._call(key, lambda: self.client.write(key, value, ttl=ttl)))

    def delete(self, key: str, *, index: int | None = None) -> bool:
        """Remove a key, with `index` only if it was last modified then; False when there was nothing to remove."""
        condition = {} if index is None else {"prevIndex": index}
        try:
            self._call(key, lambda: self.client.delete(key, **condition))
        except (self._etcd.EtcdCompareFailed, self._etcd.EtcdKeyNotFound):
            return False
        return True

    def make_directory(self, key: str, *, ttl: int | None = None) -> bool:
        """Make a directory; False when it is there already."""
        try:
            self._call(key, lambda: self.client.write(key, None, dir=True, ttl=ttl, prevExist=False))
        except self._etcd.EtcdAlreadyExist:
            return False
        return True

    def refresh(self, key: str, *, ttl: int, directory: bool = False) -> bool:
        """Give a key or directory a new time to live without waking up anybody; False when it is gone."""
        try:
            self._call(key, lambda: self.client.refresh(key, ttl, dir=directory))
        except self._etcd.EtcdKeyNotFound:
            return False
        return True

    def names_in(self, directory: str) -> frozenset[str]:
        """The full keys right below a directory; none when it is not there."""
        try:
            result = self._call(directory, lambda: self.client.read(directory))
        except self._etcd.EtcdKeyNotFound:
            return frozenset()
        return frozenset(child.key for child in result.children if child.key != result.key)

    def wait_for_change(self, key: str, *, after: int, timeout: float, recursive: bool = False) -> None:
        """Return as soon as the key may have changed after `after` (an etcd index), at the latest after `timeout` s."""
        gone = (self._etcd.EtcdWatchTimedOut, self._etcd.EtcdEventIndexCleared, self._etcd.EtcdWatcherCleared)
        wait = max(timeout, _SHORTEST_WAIT)
        try:
            self._call(key, lambda: self.client.watch(key, index=after + 1, timeout=wait, recursive=recursive or None))
        except gone:
            return

    def _node(self, result: ThirdParty) -> Node:
        return Node(
            key=result.key,
            value=None if result.dir else result.value,
            index=self._number(result.modifiedIndex),
            etcd_index=self._number(result.etcd_index),
        )

    def _number(self, said: object) -> int:
        if isinstance(said, int) or (isinstance(said, str) and said.isdecimal() and len(said) < _LONGEST_NUMBER):
            return int(said)
        raise RendezvousConnectionError(f"etcd at {self.endpoint} gave no etcd answer")

    def _call(self, key: str, request: Callable[[], ThirdParty]) -> ThirdParty:
        etcd = self._etcd
        answers = (
            etcd.EtcdKeyNotFound,
            etcd.EtcdAlreadyExist,
            etcd.EtcdCompareFailed,
            etcd.EtcdWatchTimedOut,
            etcd.EtcdEventIndexCleared,
            etcd.EtcdWatcherCleared,
        )
        try:
            return request()
        except answers as error:
            if isinstance(error, etcd.EtcdKeyNotFound) and "index" not in (error.payload or {}):
                # Any web server says 404; etcd also says how far it is.
                raise RendezvousConnectionError(f"etcd at {self.endpoint} gave no etcd answer") from error
            raise
        except (etcd.EtcdNotFile, etcd.EtcdNotDir, etcd.EtcdDirNotEmpty) as error:
            said = str(error)[:_LONGEST_QUOTE]
            raise RendezvousStateError(f"key {key} in etcd at {self.endpoint} cannot be used: {said}") from error
        except etcd.EtcdException as error:
            raise RendezvousConnectionError(self._explain(error)) from error

    def _explain(self, error: Exception) -> str:
        if _NO_V2_API in str(error):
            return (
                f"etcd at {self.endpoint}: the server does not offer the v2 API "
                "(3.6 and newer have none, 3.4 and 3.5 offer it with --enable-v2); the backend 'etcd' uses the v3 API"
            )
        return f"etcd at {self.endpoint} cannot be used: {self._cause(error)}"

    def _cause(self, error: Exception) -> str:
        """Nothing but etcd's own errors is quoted: whoever names the server may read this, and may name any server."""
        if isinstance(error, self._etcd.EtcdConnectionFailed):
            return str(importlib.import_module(_TRANSPORT).cause_of(error))
        if _is_own(getattr(error, "payload", None)):
            return str(error)[:_LONGEST_QUOTE]
        return "it gave no etcd answer"


def _is_own(payload: object) -> bool:
    # All errors of the v2 API have a number, and most say how far the server is.
    return isinstance(payload, dict) and isinstance(payload.get("errorCode"), int)
