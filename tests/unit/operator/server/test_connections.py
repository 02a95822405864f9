"""What a connection may cost, where a real one would need megabytes to show it."""

import asyncio
import itertools
import re
import sys
from collections.abc import Callable

from elasticjob.operator.metrics import Metrics
from elasticjob.operator.server.connections import (
    Call,
    Connection,
    Connections,
    HangUp,
    Reply,
    ServerLimits,
)
from elasticjob.operator.server.http1 import Head


class FullTransport(asyncio.Transport):
    """The other end takes nothing of what is written."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.is_over = asyncio.Event()

    def write(self, data: object) -> None:
        self.connection.pause_writing()

    def is_closing(self) -> bool:
        return self.is_over.is_set()

    def abort(self) -> None:
        self.is_over.set()
        self.connection.connection_lost(None)


class KeptTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written += data

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


def read(head: Head, body: bytes) -> Call:
    return lambda reply: reply(b"{}")


def connections_with(reads: Callable[[Head, bytes], Call]) -> Connections:
    return Connections(reads, limits=ServerLimits(), ssl_context=None, refused=lambda refusal: None, metrics=Metrics())


async def test_a_request_that_comes_again_as_it_was_is_not_read_again() -> None:
    bodies: list[bytes] = []

    def reading(head: Head, body: bytes) -> Call:
        bodies.append(body)
        return lambda reply: reply(body)

    connections = connections_with(reading)
    connection, transport = Connection(connections), KeptTransport()
    connection.connection_made(transport)
    for body in (b"one", b"one", b"one", b"two", b"one"):
        connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n" + body)
    assert bodies == [b"one", b"two", b"one"]
    assert re.findall(rb"(one|two)", transport.written) == [b"one", b"one", b"one", b"two", b"one"]
    await connections.stop(0.0)


async def test_no_connection_keeps_a_large_request() -> None:
    bodies: list[bytes] = []

    def reading(head: Head, body: bytes) -> Call:
        bodies.append(body)
        return lambda reply: reply(b"{}")

    connections = connections_with(reading)
    connection = Connection(connections)
    connection.connection_made(KeptTransport())
    for _ in range(2):
        connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000)
    assert len(bodies) == 2
    await connections.stop(0.0)


async def test_any_number_of_requests_that_arrive_together_are_answered_in_order() -> None:
    numbers = itertools.count()
    connections = connections_with(lambda head, body: lambda reply: reply(b"<%d>" % next(numbers)))
    connection, transport = Connection(connections), KeptTransport()
    connection.connection_made(transport)
    count = sys.getrecursionlimit() + 100
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n" * count)
    for _ in range(count):
        await asyncio.sleep(0)
    found = re.findall(rb"<(\d+)>", transport.written)
    assert [int(number) for number in found] == list(range(count))
    await connections.stop(0.0)


async def test_a_caller_that_hangs_up_is_not_answered() -> None:
    hung_up: list[str] = []
    replies: list[Reply] = []

    def held(reply: Reply) -> HangUp:
        replies.append(reply)
        return lambda: hung_up.append("hung up")

    connections = connections_with(lambda head, body: held)
    connection, transport = Connection(connections), KeptTransport()
    connection.connection_made(transport)
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
    connection.connection_lost(None)
    replies[0](b"{}")
    assert hung_up == ["hung up"]
    assert transport.written == b""
    await connections.stop(0.0)


async def test_a_client_that_does_not_take_its_answer_is_cut_and_counted() -> None:
    metrics = Metrics()
    connections = Connections(
        read,
        limits=ServerLimits(write_timeout=0.0),
        ssl_context=None,
        refused=lambda refusal: None,
        metrics=metrics,
    )
    connection = Connection(connections)
    transport = FullTransport(connection)
    connection.connection_made(transport)
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
    await asyncio.wait_for(transport.is_over.wait(), 10)
    sample = metrics.registry.get_sample_value
    assert sample("elasticjob_rendezvous_connections_cut_total", {"cause": "answer-timeout"}) == 1
    assert sample("elasticjob_rendezvous_connections") == 0
    await connections.stop(0.0)
