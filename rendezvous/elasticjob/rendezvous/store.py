"""A small key-value store with blocking reads, in the manner of torch's c10d `Store`.

The members of a round use it to find one another: one writes, the others wait. Keys and values may be `str` (stored
as UTF-8) or `bytes`; values come back as `bytes`. A key that nobody has written is "not there yet", never an error by
itself: only a wait that runs out raises.

Invariants of every implementation:
- `add` and `compare_set` are atomic among all clients of the store;
- a wait holds no lock and no connection once it has ended, however it ended;
- a store that cannot be reached raises `RendezvousConnectionError`.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import timedelta
from typing import TypeAlias

DEFAULT_TIMEOUT = timedelta(seconds=300)
"""How long reads wait unless told otherwise; the default of torch's c10d."""

_MAX_CAS_DELAY = 0.1

Data: TypeAlias = str | bytes


class StoreTimeoutError(LookupError):
    """A key was not written within the time-out. The message names the key and the time-out."""


def cas_delay() -> None:
    """Sleep a little, at random, after a lost race, so that the losers do not collide again."""
    time.sleep(random.uniform(0, _MAX_CAS_DELAY))


def to_bytes(data: Data) -> bytes:
    """The stored form of a key or a value."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise ValueError(f"store keys and values must be str or bytes, not {type(data).__name__}")


def parse_counter(key: Data, value: bytes) -> int:
    """The number that `add` has stored under `key`.

    Raises:
        ValueError: The value is not a decimal integer.
    """
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"store key {key!r} holds {value[:40]!r}, which is not a decimal integer") from None


class Store(ABC):
    """A key-value store with blocking reads."""

    def __init__(self, timeout: timedelta | None = None) -> None:
        super().__init__()
        self._timeout = DEFAULT_TIMEOUT if timeout is None else timeout

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait for a key."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Change how long `get` and `wait` wait for a key."""
        self._timeout = timeout

    @abstractmethod
    def set(self, key: Data, value: Data) -> None:
        """Write a value, whatever was stored before."""

    @abstractmethod
    def add(self, key: Data, num: int) -> int:
        """Atomically add to a decimal number, which is 0 if nobody has written it, and return the sum.

        Raises:
            ValueError: The key holds something else than a decimal number.
        """

    @abstractmethod
    def compare_set(self, key: Data, expected: Data, desired: Data) -> bytes:
        """Write `desired` if the key holds `expected`; an empty `expected` also stands for "not written yet".

        Returns:
            The value that is stored after the call, or `expected` if the key is still not there.
        """

    @abstractmethod
    def check(self, keys: Iterable[Data]) -> bool:
        """Whether all keys are there now, without waiting."""

    @abstractmethod
    def delete_key(self, key: Data) -> bool:
        """Remove a key; says whether it was there."""

    @abstractmethod
    def num_keys(self) -> int:
        """How many keys are stored."""

    @abstractmethod
    def _await_value(self, key: Data, deadline: float) -> bytes | None:
        """Read a value, waiting for it until `deadline` (monotonic seconds); None when it has not come."""

    def get(self, key: Data) -> bytes:
        """Read a value, waiting up to `timeout` until somebody writes it.

        Raises:
            LookupError: Nobody wrote it in time (`StoreTimeoutError`).
        """
        return self._await_or_raise(key, self._timeout)

    def wait(self, keys: Iterable[Data], override_timeout: timedelta | None = None) -> None:
        """Wait until all keys are there.

        Raises:
            LookupError: They were not within the time-out (`StoreTimeoutError`, names the first missing key).
        """
        timeout = self._timeout if override_timeout is None else override_timeout
        deadline = time.monotonic() + timeout.total_seconds()
        for key in keys:
            self._await_or_raise(key, timeout, deadline)

    def _await_or_raise(self, key: Data, timeout: timedelta, deadline: float | None = None) -> bytes:
        ends = time.monotonic() + timeout.total_seconds() if deadline is None else deadline
        value = self._await_value(key, ends)
        if value is None:
            raise StoreTimeoutError(f"store key {key!r} was not written within {timeout.total_seconds():g} s")
        return value


class InMemoryStore(Store):
    """A store for the threads of one process."""

    def __init__(self, timeout: timedelta | None = None) -> None:
        super().__init__(timeout)
        self._values: dict[bytes, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: Data, value: Data) -> None:
        """See base class."""
        with self._changed:
            self._put(to_bytes(key), to_bytes(value))

    def add(self, key: Data, num: int) -> int:
        """See base class."""
        with self._changed:
            total = parse_counter(key, self._values.get(to_bytes(key), b"0")) + num
            self._put(to_bytes(key), str(total).encode())
            return total

    def compare_set(self, key: Data, expected: Data, desired: Data) -> bytes:
        """See base class."""
        with self._changed:
            current = self._values.get(to_bytes(key))
            if (current or b"") == to_bytes(expected):
                self._put(to_bytes(key), to_bytes(desired))
                return to_bytes(desired)
            return to_bytes(expected) if current is None else current

    def check(self, keys: Iterable[Data]) -> bool:
        """See base class."""
        with self._changed:
            return all(to_bytes(key) in self._values for key in keys)

    def delete_key(self, key: Data) -> bool:
        """See base class."""
        with self._changed:
            return self._values.pop(to_bytes(key), None) is not None

    def num_keys(self) -> int:
        """See base class."""
        with self._changed:
            return len(self._values)

    def _put(self, key: bytes, value: bytes) -> None:
        self._values[key] = value
        self._changed.notify_all()

    def _await_value(self, key: Data, deadline: float) -> bytes | None:
        wanted = to_bytes(key)
        with self._changed:
            self._changed.wait_for(lambda: wanted in self._values, timeout=max(0.0, deadline - time.monotonic()))
            return self._values.get(wanted)


class PrefixStore(Store):
    """A view of another store in which every key stands under a prefix, so that rounds do not see each other's keys.

    No two different prefixes overlap, whatever characters they hold: a `/` inside the prefix is escaped.
    `num_keys` counts the keys of the underlying store, as torch's does.
    """

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__(store.timeout)
        self._prefix = prefix.replace("%", "%25").replace("/", "%2F").encode() + b"/"
        self._store = store

    @property
    def underlying_store(self) -> Store:
        """The store that holds the keys."""
        return self._store

    def set(self, key: Data, value: Data) -> None:
        """See base class."""
        self._store.set(self._prefixed(key), value)

    def add(self, key: Data, num: int) -> int:
        """See base class."""
        return self._store.add(self._prefixed(key), num)

    def compare_set(self, key: Data, expected: Data, desired: Data) -> bytes:
        """See base class."""
        return self._store.compare_set(self._prefixed(key), expected, desired)

    def check(self, keys: Iterable[Data]) -> bool:
        """See base class."""
        return self._store.check([self._prefixed(key) for key in keys])

    def delete_key(self, key: Data) -> bool:
        """See base class."""
        return self._store.delete_key(self._prefixed(key))

    def num_keys(self) -> int:
        """See base class."""
        return self._store.num_keys()

    def _prefixed(self, key: Data) -> bytes:
        return self._prefix + to_bytes(key)

    def _await_value(self, key: Data, deadline: float) -> bytes | None:
        return self._store._await_value(self._prefixed(key), deadline)
