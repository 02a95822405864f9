"""The few operations on etcd's v3 API that this library needs, over the JSON gateway through etcd3gw.

Each call is one request with a time-out for all of it; nothing is retried, except that a write whose lease the server
has forgotten (it had no effect then) is repeated once with a new lease. No answer, an error answer and one that is not
etcd's raise `RendezvousConnectionError`, which quotes nothing but etcd's own errors: whoever names the server may read
it, and may name any server. Redirects are such answers. Keys are compared by `mod_revision`, which the server never
gives twice.
"""

import base64
import functools
import importlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from elasticjob.rendezvous.backends.extras import ThirdParty, require
from elasticjob.rendezvous.backends.options import FOR_EVER, EtcdOptions
from elasticjob.rendezvous.errors import RendezvousConnectionError

_ABSENT = 0
"""The mod_revision that etcd compares with when a key is not there."""
_REFRESH_PARTS = 10
_LEASE_NOT_FOUND = "requested lease not found"
_OWN_WORDS = re.compile(r"etcdserver[:/][ -~]{0,200}")
_READ_AT_ONCE = 64 * 1024

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class KeyValue:
    """A key as it was read. `mod_revision` says when it was last modified."""

    value: bytes
    mod_revision: int


@dataclass(frozen=True, kw_only=True)
class Swap:
    """The outcome of a compare-and-set: whether it happened, at which revision, and what is stored if it did not."""

    done: bool
    revision: int
    stored: KeyValue | None = None


def _understood(
    call: "Callable[Concatenate[EtcdClient, P], T]",
) -> "Callable[Concatenate[EtcdClient, P], T]":
    """Translate what comes of reading an answer that is not made as etcd makes it."""

    @functools.wraps(call)
    def translated(self: "EtcdClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(self, *args, **kwargs)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise RendezvousConnectionError(f"etcd at {self.options.url} gave no etcd answer") from error

    return translated


class EtcdClient:
    """Operations on the keys of one etcd server.

    What it writes lives `ttl` seconds beyond its last write, or until it is deleted if `ttl` is FOR_EVER.
    """

    def __init__(self, options: EtcdOptions, *, ttl: int) -> None:
        """Send nothing yet.

        Raises:
            ModuleNotFoundError: etcd3gw is not installed.
        """
        etcd3gw = require("etcd3gw", needed_by="the etcd backend", extra="etcd")
        self._requests = require("requests", needed_by="the etcd backend", extra="etcd")
        self._errors = etcd3gw.exceptions
        self._transport: ThirdParty = importlib.import_module("elasticjob.rendezvous.backends.etcd_transport")
        self.options = options
        self._client = etcd3gw.client(
            host=options.host,
            port=options.port,
            protocol=options.protocol,
            timeout=self._transport.total(options.read_timeout),
            session=self._session(),
            api_path="/v3/",
        )
        self._ttl = ttl
        self._lease: int | None = None
        self._lease_refresh_due = 0.0
        self._lease_lock = threading.Lock()

    @_understood
    def get(self, key: str) -> tuple[KeyValue | None, int]:
        """Read a key, and the revision of the server when it answered."""
        answer = self._post("/kv/range", {"key": _encode(key)})
        return _first(answer.get("kvs", [])), int(answer["header"]["revision"])

    @_understood
    def put(self, key: str, value: bytes) -> None:
        """Write a key in any case."""
        self._with_lease(lambda lease: self._post("/kv/put", _put(key, value, lease)))

    @_understood
    def swap(self, key: str, value: bytes, *, mod_revision: int | None) -> Swap:
        """Write a key if it was last modified at `mod_revision`, or with None if it is not there."""

        def transaction(lease: int | None) -> dict[str, Any]:
            return {
                "compare": [_is_unchanged(key, _ABSENT if mod_revision is None else mod_revision)],
                "success": [{"request_put": _put(key, value, lease)}],
                "failure": [{"request_range": {"key": _encode(key)}}],
            }

        answer = self._with_lease(lambda lease: self._post("/kv/txn", transaction(lease)))
        revision = int(answer["header"]["revision"])
        if answer.get("succeeded", False):
            return Swap(done=True, revision=revision)
        found = answer["responses"][0]["response_range"].get("kvs", [])
        return Swap(done=False, revision=revision, stored=_first(found))

    @_understood
    def delete(self, key: str) -> bool:
        """Remove a key; False when it was not there."""
        return int(self._post("/kv/deleterange", {"key": _encode(key)}).get("deleted", 0)) > 0

    @_understood
    def delete_unchanged(self, key: str, *, mod_revision: int) -> bool:
        """Remove a key if it was last modified at `mod_revision`; False when it was not, or was not there."""
        transaction = {
            "compare": [_is_unchanged(key, mod_revision)],
            "success": [{"request_delete_range": {"key": _encode(key)}}],
        }
        return bool(self._post("/kv/txn", transaction).get("succeeded", False))

    @_understood
    def keys(self, prefix: str, *, after: str = "", limit: int) -> list[str]:
        """At most `limit` of the keys that start with the prefix, in order, beginning behind the key `after`."""
        start = f"{after}\0" if after else prefix
        end = _encode_bytes(_end_of_prefix(prefix))
        query = {"key": _encode(start), "range_end": end, "keys_only": True, "limit": limit}
        found = self._post("/kv/range", query).get("kvs", [])
        # Another program's keys may be any bytes.
        return [base64.b64decode(one["key"]).decode(errors="surrogateescape") for one in found]

    @_understood
    def count(self, prefix: str) -> int:
        """How many keys start with the prefix."""
        query = {"key": _encode(prefix), "range_end": _encode_bytes(_end_of_prefix(prefix)), "count_only": True}
        return int(self._post("/kv/range", query).get("count", 0))

    @_understood
    def wait_for_change(self, key: str, *, after: int, timeout: float) -> None:
        """Return as soon as the key has changed after revision `after`, at the latest about `timeout` seconds from now.

        Also returns when the server has compacted that revision away: the caller reads again in any case.
        """
        watch = {"create_request": {"key": _encode(key), "start_revision": after + 1}}
        with self._translated():
            try:
                self._watch_once(watch, timeout)
            except self._requests.exceptions.Timeout:
                return

    def _watch_once(self, watch: dict[str, Any], timeout: float) -> None:
        limits = (min(timeout, float(self.options.read_timeout)), timeout)
        # A session of its own: closing it is what ends the watch on the server, and leaves no connection behind.
        with (
            self._session() as session,
            session.post(self._client.get_url("/watch"), json=watch, stream=True, timeout=limits) as answer,
        ):
            for message in self._messages(answer):
                if "error" in message:
                    raise RendezvousConnectionError(f"etcd at {self.options.url} refused to watch{_own_words(message)}")
                # The server cancels a watch from a revision that it has compacted away.
                if message["result"].get("events") or message["result"].get("canceled"):
                    return

    def _messages(self, answer: ThirdParty) -> Iterator[dict[str, Any]]:
        try:
            yield from (json.loads(line) for line in answer.iter_lines(_READ_AT_ONCE) if line)
        except self._requests.exceptions.ConnectionError as error:
            # This is how requests reports a time-out in the middle of an answer.
            if "timed out" in str(error).lower():
                raise self._requests.exceptions.ReadTimeout(str(error)) from error
            raise

    def _session(self) -> ThirdParty:
        session = self._requests.Session()
        # Proxies of the environment are for the world outside; they would also override the configured CA.
        session.trust_env = False
        session.headers["Accept-Encoding"] = "identity"
        session.hooks["response"].append(self._checked)
        for adapter in session.adapters.values():
            self._transport.bound(adapter.poolmanager)
        if self.options.ca_cert:
            session.verify = self.options.ca_cert
        if self.options.ssl_cert:
            key = self.options.ssl_cert_key
            session.cert = (self.options.ssl_cert, key) if key else self.options.ssl_cert
        return session

    def _checked(self, answer: ThirdParty, **_: object) -> None:
        """Refuse an answer before requests looks at it, follows it or guesses what its bytes mean."""
        answer.encoding = "utf-8"
        if answer.status_code == self._requests.codes.ok:
            return
        with answer:
            cause = f"status {answer.status_code}{_own_words(_parsed(answer.text))}"
        raise RendezvousConnectionError(f"etcd at {self.options.url} cannot be used: {cause}")

    def _with_lease(self, write: Callable[[int | None], dict[str, Any]]) -> dict[str, Any]:
        if self._ttl == FOR_EVER:
            return write(None)
        lease = self._current_lease()
        try:
            return write(lease)
        except RendezvousConnectionError as error:
            if _LEASE_NOT_FOUND not in str(error):
                raise
        with self._lease_lock:
            if self._lease == lease:
                self._lease = None
        return write(self._current_lease())

    def _current_lease(self) -> int:
        with self._lease_lock:
            if self._lease is None or time.monotonic() >= self._lease_refresh_due:
                self._lease = self._refreshed(self._lease) or self._granted()
                self._lease_refresh_due = time.monotonic() + self._ttl / _REFRESH_PARTS
            return self._lease

    def _refreshed(self, lease: int | None) -> int | None:
        if lease is None:
            return None
        answer = self._post("/lease/keepalive", {"ID": lease}, expected="result")
        return lease if int(answer["result"].get("TTL", 0)) > 0 else None

    def _granted(self) -> int:
        return int(self._post("/lease/grant", {"TTL": self._ttl, "ID": 0}, expected="ID")["ID"])

    def _post(self, path: str, body: dict[str, Any], *, expected: str = "header") -> dict[str, Any]:
        with self._translated():
            answer = self._client.post(self._client.get_url(path), json=body)
            if not isinstance(answer, dict) or expected not in answer:
                raise ValueError(f"{expected!r} is missing")
            return answer

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (self._errors.Etcd3Exception, self._requests.exceptions.RequestException) as error:
            cause = self._transport.cause_of(error)
            raise RendezvousConnectionError(f"etcd at {self.options.url} cannot be used: {cause}") from error


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _own_words(said: object) -> str:
    """What an error of etcd says, behind a colon; nothing if another server seems to speak."""
    words = said.get("error", said.get("message")) if isinstance(said, dict) else None
    if isinstance(words, dict):
        words = words.get("message")
    return f": {words}" if isinstance(words, str) and _OWN_WORDS.fullmatch(words) else ""


def _encode(key: str) -> str:
    return _encode_bytes(key.encode(errors="surrogateescape"))


def _encode_bytes(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _end_of_prefix(prefix: str) -> bytes:
    # Our keys are ASCII, so the last byte can always be counted up.
    data = prefix.encode()
    return data[:-1] + bytes([data[-1] + 1])


def _is_unchanged(key: str, mod_revision: int) -> dict[str, Any]:
    return {"key": _encode(key), "target": "MOD", "result": "EQUAL", "mod_revision": mod_revision}


def _put(key: str, value: bytes, lease: int | None) -> dict[str, Any]:
    entry = {"key": _encode(key), "value": _encode_bytes(value)}
    return entry if lease is None else {**entry, "lease": lease}


def _first(found: Sequence[dict[str, Any]]) -> KeyValue | None:
    if not found:
        return None
    return KeyValue(value=base64.b64decode(found[0].get("value", "")), mod_revision=int(found[0]["mod_revision"]))
