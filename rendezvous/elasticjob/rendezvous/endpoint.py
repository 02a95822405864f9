"""Where the rendezvous server of the operator listens: a host, a port, and whether to speak TLS.

An endpoint is never cut at "the last colon": an IPv6 address is taken whole, in brackets when a port follows
(pytorch's own parser turns `fd00::1` into host `fd00:` and port 1). What cannot be understood is refused with the text
that was given.
"""

import ipaddress
import re
from dataclasses import dataclass

DEFAULT_PORT = 8443
"""Port of the rendezvous server when an endpoint names none."""

_SCHEMES = {"http": False, "https": True}
_HOST_AND_PORT = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>[^:]*))?")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_MAX_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class ServerEndpoint:
    """A server address. `host` is a name or a bare IP address, an IPv6 one without brackets."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        """The endpoint as a URL, with brackets around an IPv6 address."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        """`host:port`, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, *, tls: bool = False) -> "ServerEndpoint":
        """Read `host`, `host:port`, `[v6]:port`, a bare IPv6 address, or any of these behind `http://` or `https://`.

        Args:
            text: What the user or the operator configured. White space around it is ignored.
            tls: Whether to speak TLS when the text names no scheme.

        Raises:
            ValueError: The text is no endpoint. The message contains it.
        """
        rest = text.strip()
        scheme, separator, authority = rest.partition("://")
        if separator:
            if scheme.lower() not in _SCHEMES:
                raise ValueError(f"endpoint {text!r} has the scheme {scheme!r}; http and https are known")
            tls, rest = _SCHEMES[scheme.lower()], authority.removesuffix("/")
        host, port = _split(rest, text)
        return cls(host=host, port=port, tls=tls)


def _split(authority: str, text: str) -> tuple[str, int]:
    if _is_ipv6(authority):
        return authority, DEFAULT_PORT
    match = _HOST_AND_PORT.fullmatch(authority)
    if match is None:
        raise ValueError(f"endpoint {text!r} is neither host:port nor [IPv6 address]:port")
    bracketed, host, port = match.group("bracketed", "host", "port")
    if bracketed is not None and not _is_ipv6(bracketed):
        raise ValueError(f"endpoint {text!r} has {bracketed!r} in brackets, which is no IPv6 address")
    if host is not None and not _HOST_NAME.fullmatch(host):
        raise ValueError(f"endpoint {text!r} has the host {host!r}, which is neither a name nor an address")
    return bracketed or host, DEFAULT_PORT if port is None else _port(port, text)


def _port(port: str, text: str) -> int:
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= _MAX_PORT):
        raise ValueError(f"endpoint {text!r} has the port {port!r}; it must be a number from 1 to {_MAX_PORT}")
    return int(port)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
