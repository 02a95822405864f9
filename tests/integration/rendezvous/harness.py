"""One way to make, damage and remove the state of a run for every backend, on a scope of its own for each test."""

import base64
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubernetes.client import CoreV1Api

from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.backends import create_backend
from elasticjob.rendezvous.backends import memory as memory_backend
from elasticjob.rendezvous.backends.etcd_client import EtcdClient
from elasticjob.rendezvous.backends.etcd_v2_keys import connect
from elasticjob.rendezvous.backends.keys import key_segment
from elasticjob.rendezvous.backends.kubernetes import KubernetesRendezvousBackend
from elasticjob.rendezvous.backends.kubernetes_client import OfficialConfigMaps
from elasticjob.rendezvous.backends.kubernetes_client import connect as connect_to_cluster
from elasticjob.rendezvous.backends.options import EtcdOptions
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.store import Store
from tests.cluster.cluster import Cluster
from tests.cluster.etcd_server import EtcdServer


class Harness(ABC):
    """A backend on a real server, seen also from behind its back."""

    name: str
    damaged_values: Mapping[str, object]
    """Stored values, by what is wrong with them, that the backend must call corrupt."""

    def make(self, run_id: str, *, endpoint: str | None = None, **options: Any) -> tuple[RendezvousBackend, Store]:
        """A backend and a store of a run in this test's scope."""
        where = self.endpoint if endpoint is None else endpoint
        params = RendezvousParameters(self.name, where, run_id, 1, 1, **{**self.options, **options})
        return create_backend(self.name, params)

    def backend(self, run_id: str, *, endpoint: str | None = None, **options: Any) -> RendezvousBackend:
        """Only the backend."""
        return self.make(run_id, endpoint=endpoint, **options)[0]

    def store(self, run_id: str) -> Store:
        """Only the store."""
        return self.make(run_id)[1]

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """Where the server is."""

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The options that make the scope."""

    @abstractmethod
    def overwrite(self, run_id: str, value: object) -> None:
        """Store something that this library would not write; what it is depends on the backend."""

    @abstractmethod
    def stored(self, run_id: str) -> object:
        """What is stored, as it is."""

    @abstractmethod
    def remove(self, run_id: str) -> None:
        """Delete the state, as an administrator would."""

    def ipv6_options(self, port: int, directory: Path) -> dict[str, Any]:
        """Options that reach the server through a forwarder at `[::1]:port`."""
        return {"endpoint": f"[::1]:{port}"}


class MemoryHarness(Harness):
    """No server at all."""

    name = "memory"
    damaged_values: Mapping[str, object] = {"nothing": b""}

    def __init__(self) -> None:
        self._scope = uuid.uuid4().hex
        self._kept: dict[str, Store] = {}

    def make(self, run_id: str, *, endpoint: str | None = None, **options: Any) -> tuple[RendezvousBackend, Store]:
        made = super().make(run_id, endpoint=endpoint, **options)
        self._space(run_id)
        return made

    @property
    def endpoint(self) -> str:
        return self._scope

    @property
    def options(self) -> dict[str, Any]:
        return {}

    def overwrite(self, run_id: str, value: object) -> None:
        assert isinstance(value, bytes)
        self._space(run_id).state = value

    def stored(self, run_id: str) -> object:
        return self._space(run_id).state

    def remove(self, run_id: str) -> None:
        self._space(run_id).state = None

    def _space(self, run_id: str) -> memory_backend.MemorySpace:
        return memory_backend._spaces[(self._scope, run_id)]


class KubernetesHarness(Harness):
    """A ConfigMap of a real API server."""

    name = "kubernetes"
    damaged_values: Mapping[str, object] = {
        "nothing": {"binaryData": {"state": ""}},
        "no key": {"binaryData": {}},
        "text instead of binary data": {"binaryData": {}, "data": {"state": "e30="}},
        "another run": {"metadata": {"annotations": {"elasticjob.dev/run-id": "another"}}},
        "no annotation": {"metadata": {"annotations": {}}},
    }

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        params = RendezvousParameters(self.name, "", "x", 1, 1, **self.options)
        self.access = connect_to_cluster(params)
        self.config_maps = OfficialConfigMaps(self.access)
        self.core = CoreV1Api(self.access.api)
        self.core.delete_collection_namespaced_config_map(namespace)

    @property
    def endpoint(self) -> str:
        return ""

    @property
    def options(self) -> dict[str, Any]:
        return {"kubeconfig": str(self.cluster.kubeconfig), "namespace": self.namespace}

    def overwrite(self, run_id: str, value: object) -> None:
        body = self._read(run_id)
        assert isinstance(value, dict)
        metadata = {**body["metadata"], **value.get("metadata", {})}
        self.config_maps.replace({**body, **value, "metadata": metadata})

    def stored(self, run_id: str) -> object:
        body = self._read(run_id)
        return {key: body.get(key) for key in ("binaryData", "data")}

    def remove(self, run_id: str) -> None:
        self.core.delete_namespaced_config_map(self.object_name(run_id), self.namespace)

    def object_name(self, run_id: str) -> str:
        """The ConfigMap of a run."""
        backend = self.backend(run_id)
        assert isinstance(backend, KubernetesRendezvousBackend)
        return backend.object_name

    def ipv6_options(self, port: int, directory: Path) -> dict[str, Any]:
        config = json.loads(self.cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"] |= {"server": f"https://[::1]:{port}", "tls-server-name": "127.0.0.1"}
        path = directory / "kubeconfig"
        path.write_text(json.dumps(config))
        return {"kubeconfig": str(path)}

    def _read(self, run_id: str) -> dict[str, Any]:
        body = self.config_maps.read(self.object_name(run_id))
        assert body is not None
        return body


class _EtcdHarness(Harness):
    def __init__(self, server: EtcdServer) -> None:
        self.server = server
        self.prefix = f"/test-{uuid.uuid4().hex}"

    @property
    def endpoint(self) -> str:
        return self.server.endpoint

    @property
    def options(self) -> dict[str, Any]:
        return {"prefix": self.prefix}

    def _key(self, run_id: str) -> str:
        return f"{self.prefix}/rendezvous/{key_segment(run_id)}"

    @property
    def etcd_options(self) -> EtcdOptions:
        return EtcdOptions(host=self.server.host, port=self.server.port, read_timeout=10)


class EtcdHarness(_EtcdHarness):
    """A key of a real, current etcd."""

    name = "etcd"
    damaged_values: Mapping[str, object] = {"nothing": b""}

    def overwrite(self, run_id: str, value: object) -> None:
        assert isinstance(value, bytes)
        self._client.put(self._key(run_id), value)

    def stored(self, run_id: str) -> object:
        found, _ = self._client.get(self._key(run_id))
        return found.value if found else None

    def remove(self, run_id: str) -> None:
        assert self._client.delete(self._key(run_id))

    @property
    def _client(self) -> EtcdClient:
        return EtcdClient(self.etcd_options, ttl=600)


class EtcdV2Harness(_EtcdHarness):
    """A key of a real etcd 3.4 with the v2 API."""

    name = "etcd-v2"
    damaged_values: Mapping[str, object] = {
        "nothing": "",
        "no base64": "!!!!",
        "cut off": "abc",
        "cut off in the middle": base64.b64encode(b"a valid state").decode()[:-3],
        "line breaks": "YWJj\nZGVm",
        "not ASCII": "YWJjé===",
    }

    def overwrite(self, run_id: str, value: object) -> None:
        connect(self.etcd_options).write(self._key(run_id), value)

    def stored(self, run_id: str) -> object:
        return connect(self.etcd_options).read(self._key(run_id)).value

    def remove(self, run_id: str) -> None:
        connect(self.etcd_options).delete(self._key(run_id))
