"""A small store in one ConfigMap: enough for the members of a round to find one another without another service.

All keys of a run stand in one object and every write is a compare-and-set of the whole, so it is for a handful of small
values. Waiting is reading again at growing, random intervals: workers need no right to watch.
"""

import base64
import binascii
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from elasticjob.rendezvous.backends.keys import check_run_id, object_name
from elasticjob.rendezvous.backends.kubernetes_objects import (
    MANAGED_LABELS,
    RUN_ID_ANNOTATION,
    AlreadyExists,
    ConfigMaps,
    Conflict,
)
from elasticjob.rendezvous.errors import RendezvousStateError
from elasticjob.rendezvous.store import Data, Store, cas_delay, parse_counter, to_bytes

NAME_PREFIX = "elasticjob-store"
MAX_STORE_BYTES = 1_000_000
"""Greatest sum of all values, in bytes."""

_FIRST_POLL = 0.05
_LONGEST_POLL = 1.0

Values = dict[str, bytes]
T = TypeVar("T")


class ConfigMapStore(Store):
    """A store of one run."""

    def __init__(self, config_maps: ConfigMaps, run_id: str) -> None:
        """Use a port to the API; see `KubernetesRendezvousBackend`."""
        super().__init__()
        self._config_maps = config_maps
        self._run_id = check_run_id(run_id)
        self._name = object_name(run_id, prefix=NAME_PREFIX)

    def set(self, key: Data, value: Data) -> None:
        """See base class."""
        self._change(lambda values: values.__setitem__(_encode(key), to_bytes(value)))

    def add(self, key: Data, num: int) -> int:
        """See base class."""

        def added(values: Values) -> int:
            total = parse_counter(key, values.get(_encode(key), b"0")) + num
            values[_encode(key)] = str(total).encode()
            return total

        return self._change(added)

    def compare_set(self, key: Data, expected: Data, desired: Data) -> bytes:
        """See base class."""

        def swapped(values: Values) -> bytes:
            current = values.get(_encode(key))
            if (current or b"") == to_bytes(expected):
                values[_encode(key)] = to_bytes(desired)
                return to_bytes(desired)
            return to_bytes(expected) if current is None else current

        return self._change(swapped)

    def check(self, keys: Iterable[Data]) -> bool:
        """See base class."""
        values = self._values(self._config_maps.read(self._name))
        return all(_encode(key) in values for key in keys)

    def delete_key(self, key: Data) -> bool:
        """See base class."""
        return self._change(lambda values: values.pop(_encode(key), None)) is not None

    def num_keys(self) -> int:
        """See base class."""
        return len(self._values(self._config_maps.read(self._name)))

    def _await_value(self, key: Data, deadline: float) -> bytes | None:
        pause = _FIRST_POLL
        while True:
            value = self._values(self._config_maps.read(self._name)).get(_encode(key))
            remaining = deadline - time.monotonic()
            if value is not None or remaining <= 0:
                return value
            time.sleep(min(random.uniform(pause / 2, pause), remaining))
            pause = min(pause * 2, _LONGEST_POLL)

    def _change(self, change: Callable[[Values], T]) -> T:
        while True:
            body = self._config_maps.read(self._name)
            values = self._values(body)
            before = dict(values)
            result = change(values)
            if values == before or self._written(body, values):
                return result
            cas_delay()

    def _written(self, body: dict[str, Any] | None, values: Values) -> bool:
        size = sum(len(value) for value in values.values())
        if size > MAX_STORE_BYTES:
            raise RendezvousStateError(
                f"ConfigMap {self._name} would hold {size} bytes of store values, at most {MAX_STORE_BYTES} are allowed"
            )
        data = {key: base64.b64encode(value).decode() for key, value in values.items()}
        try:
            if body is None:
                self._config_maps.create(self._new_body(data))
            else:
                body["metadata"].pop("managedFields", None)
                self._config_maps.replace({**body, "binaryData": data})
        except (AlreadyExists, Conflict):
            return False
        return True

    def _new_body(self, data: dict[str, str]) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self._name,
                "labels": MANAGED_LABELS,
                "annotations": {RUN_ID_ANNOTATION: self._run_id},
            },
            "binaryData": data,
        }

    def _values(self, body: dict[str, Any] | None) -> Values:
        try:
            stored = (body or {}).get("binaryData") or {}
            return {key: base64.b64decode(value, validate=True) for key, value in stored.items()}
        except (binascii.Error, ValueError, TypeError) as error:
            raise RendezvousStateError(f"ConfigMap {self._name} is corrupt: {error}") from error


def _encode(key: Data) -> str:
    # Keys of a ConfigMap may hold letters, digits, "-", "_" and ".", at most 253 characters.
    return "k." + to_bytes(key).hex()
