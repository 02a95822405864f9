"""The operator's settings, read once from the environment.

Every setting has the variable `ELASTICJOB_OPERATOR_<NAME>` and a default that suits a small cluster. A wrong value
stops the operator at start with a message that names the variable, the value and the limit; an unknown variable of
that prefix does so too, since a misspelt setting would otherwise be ignored silently.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")

PREFIX = "ELASTICJOB_OPERATOR_"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where Kubernetes tells a pod its own namespace."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ENDPOINT = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:\[\]]+):\d{1,5}")


class SettingsError(ValueError):
    """A setting is unknown or out of its limits."""


@dataclass(frozen=True)
class _Limits(Generic[T]):
    """How a value is read, what it must satisfy, and how that is said."""

    parse: Callable[[str], T]
    accepts: Callable[[T], bool]
    text: str


def _setting(default: T, limits: _Limits[T]) -> T:
    return field(default=default, metadata={"limits": limits})


def _number(default: float, low: float, high: float) -> float:
    return _setting(default, _Limits(float, lambda v: low <= v <= high, f"must be from {low:g} to {high:g}"))


def _integer(default: int, low: int, high: int) -> int:
    return _setting(default, _Limits(int, lambda v: low <= v <= high, f"must be from {low} to {high}"))


def _choice(default: str, *words: str, parse: Callable[[str], str] = str) -> str:
    return _setting(default, _Limits(parse, lambda v: v in words, f"must be one of {', '.join(words)}"))


def _matching(default: str, pattern: re.Pattern[str], text: str) -> str:
    return _setting(default, _Limits(str, lambda v: len(v) <= 253 and bool(pattern.fullmatch(v)), text))


def _flag(*, default: bool) -> bool:
    words = {"true": True, "false": False}
    return _setting(default, _Limits(lambda text: words[text.lower()], lambda v: True, "must be true or false"))


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _list_of(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    return _setting((), _Limits(_names, lambda names: all(map(pattern.fullmatch, names)), text))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How this operator runs.

    Args:
        namespace: Where the operator itself runs: its lease and its Secret are there.
        watch_namespaces: The namespaces whose jobs are served; empty for the whole cluster.
        pod_name: Name of the operator's own pod; also the readable part of its identity in the lease.
        image: The operator's own image, from which workers get the client library.
        image_pull_policy: Pull policy of that image in worker pods.
        image_pull_secrets: Names of pull Secrets to add to worker pods.
        lease_name: Name of the Lease that decides who leads.
        lease_duration_seconds: How long a lease that is not renewed keeps others out. The holder stops acting after two
            thirds of it without a renewal.
        api_timeout_seconds: Deadline of one call to the API server.
        reconcile_workers: How many jobs are worked on at the same time.
        pod_parallelism: How many pods of one job are created or deleted at the same time.
        retry_base_seconds: Longest pause after the first failed reconcile; it doubles with each failure in a row.
        retry_limit_seconds: Longest pause at all.
        status_interval_seconds: Shortest time between two status writes of one job.
        resync_interval_seconds: Pause between full comparisons of the cache with the API server.
        health_port: Port of /healthz, /readyz and /metrics; 0 takes a free one.
        rendezvous_port: Port that the hosted rendezvous listens on; 0 takes a free one.
        rendezvous_endpoint: `host:port` at which worker pods reach it; empty for the Service `elasticjob-rendezvous` in
            the operator's namespace.
        rendezvous_tls: Whether the rendezvous is served by TLS, with certificates that the operator makes.
        cluster_domain: DNS domain of the cluster.
        shutdown_timeout_seconds: How long a stopping operator may take to end in good order.
        log_level: Threshold of the log.
        log_format: `json` for one JSON object a line, `text` for people.
    """

    namespace: str = _matching("default", _DNS_LABEL, "must be the name of a namespace")
    watch_namespaces: tuple[str, ...] = _list_of(_DNS_LABEL, "must be a comma-separated list of namespace names")
    pod_name: str = _matching("elasticjob-operator", _DNS_SUBDOMAIN, "must be the name of a pod")
    image: str = _matching("elasticjob:latest", re.compile(r"\S+"), "must be the name of an image")
    image_pull_policy: str = _choice("IfNotPresent", "Always", "IfNotPresent", "Never")
    image_pull_secrets: tuple[str, ...] = _list_of(_DNS_SUBDOMAIN, "must be a comma-separated list of Secret names")
    lease_name: str = _matching("elasticjob-operator", _DNS_SUBDOMAIN, "must be the name of a Lease")
    lease_duration_seconds: float = _number(15.0, 2, 3600)
    api_timeout_seconds: float = _number(10.0, 0.5, 60)
    reconcile_workers: int = _integer(4, 1, 64)
    pod_parallelism: int = _integer(16, 1, 256)
    retry_base_seconds: float = _number(0.5, 0.01, 60)
    retry_limit_seconds: float = _number(60.0, 0.1, 3600)
    status_interval_seconds: float = _number(1.0, 0, 60)
    resync_interval_seconds: float = _number(600.0, 1, 86400)
    health_port: int = _integer(8080, 0, 65535)
    rendezvous_port: int = _integer(8443, 0, 65535)
    rendezvous_endpoint: str = _setting(
        "", _Limits(str, lambda v: not v or bool(_ENDPOINT.fullmatch(v)), "must be host:port")
    )
    rendezvous_tls: bool = _flag(default=True)
    cluster_domain: str = _matching("cluster.local", _DNS_SUBDOMAIN, "must be a DNS domain")
    shutdown_timeout_seconds: float = _number(8.0, 1, 600)
    log_level: str = _choice("INFO", "DEBUG", "INFO", "WARNING", "ERROR", parse=str.upper)
    log_format: str = _choice("json", "json", "text")

    def __post_init__(self) -> None:
        for one in fields(self):
            value, limits = getattr(self, one.name), one.metadata["limits"]
            if not limits.accepts(value):
                raise SettingsError(f"{variable(one.name)}: {value!r} {limits.text}")
        if self.rendezvous_port == 0 and not self.rendezvous_endpoint:
            raise SettingsError(
                f"{variable('rendezvous_endpoint')}: must be given when {variable('rendezvous_port')} is 0"
            )
        if self.retry_limit_seconds < self.retry_base_seconds:
            raise SettingsError(
                f"{variable('retry_limit_seconds')}: {self.retry_limit_seconds:g} must be at least "
                f"{variable('retry_base_seconds')} ({self.retry_base_seconds:g})"
            )

    @property
    def endpoint(self) -> str:
        """`host:port` at which worker pods reach the rendezvous."""
        service = f"elasticjob-rendezvous.{self.namespace}.svc.{self.cluster_domain}:{self.rendezvous_port}"
        return self.rendezvous_endpoint or service

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """The namespaces to list and watch; `(None,)` stands for the whole cluster."""
        return self.watch_namespaces or (None,)

    def serves(self, namespace: str) -> bool:
        """Whether jobs of this namespace are this operator's business."""
        return not self.watch_namespaces or namespace in self.watch_namespaces


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def from_environment(environ: Mapping[str, str], *, namespace_file: Path = NAMESPACE_FILE) -> Settings:
    """Read and check all settings.

    Args:
        namespace_file: Tells the own namespace where the environment does not.

    Raises:
        SettingsError: A variable is unknown, cannot be parsed or is out of its limits.
    """
    known = {variable(one.name): one for one in fields(Settings)}
    for name in environ:
        if name.startswith(PREFIX) and name not in known:
            raise SettingsError(f"{name}: there is no such setting; known are {', '.join(sorted(known))}")
    values: dict[str, Any] = {
        one.name: _parse(name, environ[name], one.metadata["limits"]) for name, one in known.items() if name in environ
    }
    if "namespace" not in values and namespace_file.is_file():
        values["namespace"] = namespace_file.read_text(encoding="utf-8").strip()
    return Settings(**values)


def _parse(name: str, text: str, limits: _Limits[T]) -> T:
    try:
        return limits.parse(text)
    except (ValueError, KeyError):
        raise SettingsError(f"{name}: {text!r} {limits.text}") from None
