"""Under which address the peers reach this host, and on which port.

Names are the last resort: within a cluster a host name often resolves nowhere else, and asking for it may take half a
minute. The address of the interface that leads outwards needs no resolver.
"""

import os
import socket

_ADDRESS_VARIABLES = ("ELASTICJOB_POD_IP", "POD_IP")

# Addresses of documentation (RFC 5737, RFC 3849): connecting a datagram socket to them sends nothing.
_OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def local_address() -> str:
    """The address of this host: that of the pod, else of the interface that leads outwards, else its name."""
    for variable in _ADDRESS_VARIABLES:
        if os.environ.get(variable):
            return os.environ[variable]
    for family, outside in _OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return socket.gethostname()


def free_port() -> int:
    """A TCP port that nobody used a moment ago.

    Raises:
        OSError: There is none.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=family == socket.AF_INET6) as server:
        return int(server.getsockname()[1])
