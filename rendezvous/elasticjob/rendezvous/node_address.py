"""Which address of this machine the other nodes can use."""

import socket

from elasticjob.rendezvous.endpoint import ServerEndpoint


def own_address(server: ServerEndpoint) -> str:
    """The address from which this machine would call `server`. Sends nothing.

    Works with IPv4 and IPv6 and without a host name that resolves.

    Raises:
        OSError: The name of the server does not resolve, or there is no route to it.
    """
    failure: OSError | None = None
    for family, _, _, _, address in socket.getaddrinfo(server.host, server.port, type=socket.SOCK_DGRAM):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError as error:
            failure = error
    raise failure or OSError(f"{server.host} has no address")


def free_port() -> int:
    """A TCP port that nothing listens on, on any address of this machine.

    Another process may take it before the caller does; a round that fails for it is formed anew with another port.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=family == socket.AF_INET6) as probe:
        return int(probe.getsockname()[1])
