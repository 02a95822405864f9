from collections.abc import AsyncIterator

import aiohttp
import pytest

from elasticjob.operator.health import HealthServer
from elasticjob.operator.metrics import Metrics


class Troubles:
    """What is wrong, as set by the test."""

    def __init__(self) -> None:
        self.live: list[str] = []
        self.ready: list[str] = []


@pytest.fixture
def troubles() -> Troubles:
    return Troubles()


@pytest.fixture
async def url(troubles: Troubles) -> AsyncIterator[str]:
    server = HealthServer(port=0, live=lambda: troubles.live, ready=lambda: troubles.ready, metrics=Metrics())
    await server.start()
    yield f"http://127.0.0.1:{server.port}"
    await server.stop()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_all_is_well(url: str) -> None:
    assert await get(f"{url}/healthz") == (200, "ok\n")
    assert await get(f"{url}/readyz") == (200, "ok\n")


async def test_a_trouble_is_told_with_its_words(url: str, troubles: Troubles) -> None:
    troubles.live.append("watch has not responded for 40 seconds")
    troubles.ready.append("the watches are not active")
    assert await get(f"{url}/healthz") == (503, "watch has not responded for 40 seconds\n")
    assert await get(f"{url}/readyz") == (503, "the watches are not active\n")


async def test_metrics_are_served_as_text(url: str) -> None:
    status, text = await get(f"{url}/metrics")
    assert status == 200
    assert "# TYPE elasticjob_leader gauge" in text
    assert "_created" not in text
