"""The state of a run in one ConfigMap, guarded by compare-and-set.

The token is the object's UID and resourceVersion: a write is a PUT that names both, so it fails when anybody has
changed the object, and also when it was deleted and made anew under the same name. The first write is a POST of a fixed
name, which succeeds once. The state is one key of `binaryData`; whatever else stands in the object (labels, owner,
other keys) is written back as it was read with the token. Each write also carries a random id: the API server does not
change the resourceVersion for a PUT that changes nothing, and two writers of equal bytes would then both have won.

The backend talks through the port `ConfigMaps` and needs no package itself: workers use the official client
(`create_backend`), the operator brings its own. Nothing is retried: a conflict is an answer, anything else an error.
"""

import copy
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.backends.keys import check_run_id, object_name
from elasticjob.rendezvous.backends.kubernetes_client import OfficialConfigMaps, connect
from elasticjob.rendezvous.backends.kubernetes_objects import (
    MANAGED_LABELS,
    RUN_ID_ANNOTATION,
    AlreadyExists,
    ConfigMaps,
    Conflict,
)
from elasticjob.rendezvous.backends.kubernetes_store import ConfigMapStore
from elasticjob.rendezvous.backends.values import (
    check_new_state,
    check_stored_state,
    decode_base64,
    encode_base64,
)
from elasticjob.rendezvous.errors import RendezvousStateError
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.store import Store

STATE_KEY = "state"
WRITE_ID_ANNOTATION = "elasticjob.dev/write-id"
NAME_PREFIX = "elasticjob-rendezvous"
MAX_STATE_BYTES = 1_000_000
"""Greatest state, in bytes: the API server allows 1 MiB for all values of a ConfigMap together."""


@dataclass(frozen=True, kw_only=True)
class ConfigMapToken:
    """Fencing token of a ConfigMap. Equal when UID and resourceVersion are; `body` is the object that had them."""

    uid: str
    resource_version: str
    body: Mapping[str, Any] = field(compare=False, repr=False)


class KubernetesRendezvousBackend(RendezvousBackend):
    """Holds the state in one ConfigMap."""

    def __init__(
        self,
        config_maps: ConfigMaps,
        run_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        owner_references: list[dict[str, Any]] | None = None,
    ) -> None:
        """Use a port to the API.

        Args:
            config_maps: The ConfigMaps of the run's namespace.
            run_id: Any text; kept in the annotation `elasticjob.dev/run-id` and checked on each read.
            name: Name of the ConfigMap; derived from the run id unless given.
            labels: Labels of the object, set when it is made.
            owner_references: Owners of the object, set when it is made, so that it goes with them.

        Raises:
            ValueError: The run id cannot be used.
        """
        self._config_maps = config_maps
        self._run_id = check_run_id(run_id)
        self._name = name or object_name(run_id, prefix=NAME_PREFIX)
        self._labels = dict(labels or {})
        self._owner_references = list(owner_references or [])
        self._where = f"ConfigMap {self._name}"

    @property
    def name(self) -> str:
        """See base class."""
        return "kubernetes"

    @property
    def object_name(self) -> str:
        """The name of the ConfigMap."""
        return self._name

    def get_state(self) -> tuple[bytes, Token] | None:
        """See base class."""
        body = self._config_maps.read(self._name)
        return None if body is None else (self._state(body), _token(body))

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """See base class."""
        check_new_state(state, where=self._where, limit=MAX_STATE_BYTES)
        written = self._write(state, token)
        if written is not None:
            return state, _token(written), True
        stored = self.get_state()
        return None if stored is None else (*stored, False)

    def _write(self, state: bytes, token: Token | None) -> dict[str, Any] | None:
        try:
            if token is None:
                return self._config_maps.create(self._new_body(state))
            # A token of another object would make us write that object.
            if isinstance(token, ConfigMapToken) and token.body["metadata"]["name"] == self._name:
                return self._config_maps.replace(_with_state(token.body, state))
        except (AlreadyExists, Conflict):
            pass
        return None

    def _new_body(self, state: bytes) -> dict[str, Any]:
        annotations = {RUN_ID_ANNOTATION: self._run_id, WRITE_ID_ANNOTATION: _write_id()}
        metadata: dict[str, Any] = {"name": self._name, "annotations": annotations}
        if self._labels:
            metadata["labels"] = self._labels
        if self._owner_references:
            metadata["ownerReferences"] = self._owner_references
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "binaryData": {STATE_KEY: encode_base64(state)},
        }

    def _state(self, body: Mapping[str, Any]) -> bytes:
        run_id = (body["metadata"].get("annotations") or {}).get(RUN_ID_ANNOTATION)
        if run_id != self._run_id:
            raise RendezvousStateError(
                f"{self._where} belongs to run {run_id!r} and not to {self._run_id!r} "
                f"according to its annotation {RUN_ID_ANNOTATION}"
            )
        values = body.get("binaryData") or {}
        if STATE_KEY not in values:
            raise RendezvousStateError(f"{self._where} is corrupt: it has no binaryData key {STATE_KEY!r}")
        where = f"binaryData key {STATE_KEY!r} of {self._where}"
        return check_stored_state(decode_base64(values[STATE_KEY], where=where), where=where)


def _token(body: Mapping[str, Any]) -> ConfigMapToken:
    metadata = body["metadata"]
    return ConfigMapToken(uid=metadata["uid"], resource_version=metadata["resourceVersion"], body=body)


def _write_id() -> str:
    return uuid.uuid4().hex


def _with_state(body: Mapping[str, Any], state: bytes) -> dict[str, Any]:
    written = copy.deepcopy(dict(body))
    written["metadata"].pop("managedFields", None)
    written["metadata"]["annotations"][WRITE_ID_ANNOTATION] = _write_id()
    written["binaryData"] = {**(written.get("binaryData") or {}), STATE_KEY: encode_base64(state)}
    return written


def create_backend(params: RendezvousParameters) -> tuple[KubernetesRendezvousBackend, Store]:
    """Make a backend and a store in ConfigMaps of a namespace, through the official `kubernetes` client.

    The endpoint may be empty: then the API server is that of the pod, or else of the kubeconfig. The caller needs the
    verbs get, create and update on configmaps. The objects stay when the run is over, since no node knows that it is
    the last; they carry the label `app.kubernetes.io/managed-by: elasticjob`.

    Options: `namespace` (that of the pod or of the kubeconfig's context), `kubeconfig` (path), `context`,
    `read_timeout` (seconds that one request may take, 10), `name` (of the ConfigMap; derived from the run id).

    Raises:
        ValueError: An option, the endpoint or the run id cannot be used.
        RendezvousConnectionError: There is no usable cluster configuration.
        ModuleNotFoundError: The `kubernetes` package is not installed.
    """
    config_maps = OfficialConfigMaps(connect(params))
    backend = KubernetesRendezvousBackend(config_maps, params.run_id, name=params.get("name"), labels=MANAGED_LABELS)
    return backend, ConfigMapStore(config_maps, params.run_id)
