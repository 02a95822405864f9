"""Where the rendezvous server of the operator listens: a host, a port, and whether to speak TLS.

An endpoint is never cut at "the last colon": an IPv6 address is taken whole, in brackets when a port follows
(pytorch's own parser turns `fd00::1` into host `fd00:` and port 1). What cannot be understood is refused with the text
that was given.
"""

from dataclasses import dataclass

from elasticjob.rendezvous.utils import parse_rendezvous_endpoint

DEFAULT_PORT = 8443
"""Port of the rendezvous server when an endpoint names none."""

_SCHEMES = {"http": False, "https": True}


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
        host, port = parse_rendezvous_endpoint(rest, DEFAULT_PORT)
        if not rest.strip() or port == 0:
            raise ValueError(f"endpoint {text!r} names no {'host' if port else 'port that can be called'}")
        return cls(host=host, port=port, tls=tls)
