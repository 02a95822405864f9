"""What a connection may cost, where a real one would need megabytes to show it."""

import asyncio
from functools import partial

from elasticjob.operator.metrics import Metrics
from elasticjob.operator.server.connections import Call, Connection, Connections, ServerLimits
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


async def answer(head: Head, body: bytes) -> bytes:
    return b"{}"


def read(head: Head, body: bytes) -> Call:
    return partial(answer, head, body)


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
