"""Reading the configuration of a backend from its parameters.

Every refusal names the option, the value that was given and what is allowed.
"""

from dataclasses import dataclass
from pathlib import Path

from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.utils import parse_rendezvous_endpoint

ETCD_PORT = 2379
DEFAULT_READ_TIMEOUT = 60
"""Seconds that one request may take; the default of torch elastic."""
MAX_READ_TIMEOUT = 3600
DEFAULT_TTL = 7200
"""Seconds that the state of a run outlives its last write; the default of torch elastic."""
MAX_TTL = 30 * 24 * 3600
FOR_EVER = 0
"""The `ttl` of a state that stays until it is deleted."""

_PROTOCOLS = ("http", "https")


def bounded_int(params: RendezvousParameters, key: str, default: int, *, maximum: int, minimum: int = 1) -> int:
    """A whole number from `minimum` to `maximum`.

    Raises:
        ValueError: It is anything else.
    """
    value = params.get(key, default)
    try:
        number = int(str(value).strip())
    except ValueError:
        number = minimum - 1
    if not minimum <= number <= maximum:
        raise ValueError(f"{key} must be a whole number from {minimum} to {maximum}, not {value!r}")
    return number


def choice(params: RendezvousParameters, key: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of a few words, in any case.

    Raises:
        ValueError: It is none of them.
    """
    value = params.get(key, default)
    word = str(value).strip().lower()
    if word not in allowed:
        raise ValueError(f"{key} must be one of {', '.join(allowed)}, not {value!r}")
    return word


def existing_file(params: RendezvousParameters, key: str) -> str | None:
    """The path of a file, or None when the option is not set.

    Raises:
        ValueError: There is no such file.
    """
    value = params.get(key)
    if value is None or value == "":
        return None
    if not Path(value).is_file():
        raise ValueError(f"{key} must be the path of an existing file, not {value!r}")
    return str(value)


def url_host(host: str) -> str:
    """A host name or address as it stands in a URL: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True, kw_only=True)
class EtcdOptions:
    """How to reach an etcd server.

    Args:
        host: Name or address; an IPv6 address without brackets.
        read_timeout: Seconds for a request, from connecting to the last byte of the answer; on the v2 API seconds to
            connect and send, and again for the whole answer.
        ssl_cert: Path of the client's certificate, which may hold its key as well.
    """

    host: str
    port: int
    protocol: str = "http"
    read_timeout: int = DEFAULT_READ_TIMEOUT
    ssl_cert: str | None = None
    ssl_cert_key: str | None = None
    ca_cert: str | None = None

    @property
    def url(self) -> str:
        """The endpoint as a URL."""
        return f"{self.protocol}://{url_host(self.host)}:{self.port}"


def etcd_options(params: RendezvousParameters) -> EtcdOptions:
    """Read the options `protocol`, `read_timeout`, `ssl_cert`, `ssl_cert_key` and `ca_cert`.

    Raises:
        ValueError: One of them, or the endpoint, cannot be used.
    """
    host, port = parse_rendezvous_endpoint(params.endpoint, default_port=ETCD_PORT)
    options = EtcdOptions(
        host=host,
        port=port,
        protocol=choice(params, "protocol", "http", _PROTOCOLS),
        read_timeout=bounded_int(params, "read_timeout", DEFAULT_READ_TIMEOUT, maximum=MAX_READ_TIMEOUT),
        ssl_cert=existing_file(params, "ssl_cert"),
        ssl_cert_key=existing_file(params, "ssl_cert_key"),
        ca_cert=existing_file(params, "ca_cert"),
    )
    if options.ssl_cert_key and not options.ssl_cert:
        raise ValueError(f"ssl_cert_key {options.ssl_cert_key!r} is given without ssl_cert")
    return options
