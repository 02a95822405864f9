"""A fake rendezvous server, and clients of it that are shut down at the end of a test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticjob.rendezvous import heartbeat
from elasticjob.rendezvous.client import HostedRendezvousClient
from elasticjob.rendezvous.protocol import LeaveOutcome
from tests.unit.rendezvous.worker.fake_server import FakeServer, serving

MakeClient = Callable[..., HostedRendezvousClient]


@pytest.fixture(autouse=True)
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats of this process come as fast as the fake server asks for them."""
    monkeypatch.setattr(heartbeat, "FIRST_SECONDS", 0.02)
    monkeypatch.setattr(heartbeat, "LEAST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as running:
        yield running


@pytest.fixture
def make_client(server: FakeServer, tmp_path: Path) -> Iterator[MakeClient]:
    """Makes a client with this name as its token."""
    clients: list[HostedRendezvousClient] = []

    def make(name: str = "a", *, join_timeout: float = 30.0) -> HostedRendezvousClient:
        token = tmp_path / f"token-{name}"
        token.write_text(name, encoding="ascii")
        client = HostedRendezvousClient(
            endpoint=server.endpoint,
            run_id="run-1",
            address=f"10.0.0.{len(clients) + 1}",
            token_file=token,
            join_timeout=join_timeout,
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.leave(LeaveOutcome.LEFT, timeout=0.5)


@pytest.fixture
def client(make_client: MakeClient) -> HostedRendezvousClient:
    return make_client()
