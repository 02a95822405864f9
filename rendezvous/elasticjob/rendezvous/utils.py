"""Reading the endpoint of a rendezvous."""

import ipaddress
import re

__all__ = ["parse_rendezvous_endpoint"]

_PORT = re.compile(r"[0-9]{1,5}")
_HOST = re.compile(r"[\w.-]+")
_BRACKETED = re.compile(r"\[([^\[\]]*)\](?::(.*))?", re.DOTALL)


def parse_rendezvous_endpoint(endpoint: str | None, default_port: int) -> tuple[str, int]:
    """Split an endpoint into host and port.

    A bare IPv6 address is taken whole, with the default port; one with a port needs brackets (`[fd00::1]:2379`).

    Args:
        endpoint: `<host>[:<port>]`; None or blank stands for this host.
        default_port: The port if the endpoint names none.

    Returns:
        Host, without brackets, and port.

    Raises:
        ValueError: Host or port cannot be used. The message gives the endpoint and what is allowed.
    """
    text = (endpoint or "").strip()
    if not text:
        return "localhost", default_port
    if _is_ipv6(text):
        return text, default_port
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed is not None:
        host, port = bracketed.group(1), bracketed.group(2)
        valid = _is_ipv6(host) or _HOST.fullmatch(host) is not None
    else:
        host, colon, rest = text.rpartition(":") if ":" in text else (text, "", "")
        port = rest if colon else None
        valid = _HOST.fullmatch(host) is not None
    number = default_port if port is None else _port(port, text)
    if not valid:
        raise ValueError(
            f"The hostname of the rendezvous endpoint '{text}' must be a dot-separated list of labels, "
            "an IPv4 address, or an IPv6 address."
        )
    return host, number


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _port(text: str, endpoint: str) -> int:
    if _PORT.fullmatch(text) is None or int(text) >= 65536:
        # The wording is torch's; 65536 itself is not allowed.
        raise ValueError(
            f"The port number of the rendezvous endpoint '{endpoint}' must be an integer between 0 and 65536."
        )
    return int(text)
