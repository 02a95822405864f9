"""Handlers of one peer-to-peer run with real threads, over a backend that can be made to fail."""

import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from elasticjob.rendezvous.api import RendezvousInfo, RendezvousSettings, RendezvousTimeout
from elasticjob.rendezvous.backend import Token
from elasticjob.rendezvous.backends.memory import MemoryRendezvousBackend, MemorySpace
from elasticjob.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from elasticjob.rendezvous.encoding import decode
from elasticjob.rendezvous.local_node import new_node
from elasticjob.rendezvous.state import State
from elasticjob.rendezvous.store import InMemoryStore, Store

PATIENCE = 30.0
INTERVAL = 0.05


class Backend(MemoryRendezvousBackend):
    """A backend in memory that can be made to fail."""

    def __init__(self, space: MemorySpace) -> None:
        super().__init__(space)
        self.space = space
        self.fault: Callable[[], None] | None = None
        self.loses = False

    def get_state(self) -> tuple[bytes, Token] | None:
        self._meet_fault()
        return super().get_state()

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        self._meet_fault()
        return super().set_state(state, "an old token" if self.loses else token)

    def _meet_fault(self) -> None:
        if self.fault is not None:
            self.fault()


class Run:
    """The handlers of a run, each with a backend of its own over one state."""

    def __init__(self) -> None:
        self.space = MemorySpace("run")
        self.store = InMemoryStore()
        self.backends: list[Backend] = []
        self.handlers: list[DynamicRendezvousHandler] = []
        self.pool = ThreadPoolExecutor(16)

    def handler(
        self,
        minimum: int = 1,
        maximum: int = 1,
        *,
        join: float = PATIENCE,
        last_call: float = 0.2,
        close: float = PATIENCE,
        interval: float = INTERVAL,
        attempts: int = 200,
        store: Store | None = None,
        **options: Any,
    ) -> DynamicRendezvousHandler:
        timeouts = (join, last_call, close, 1.0)
        backend = Backend(self.space)
        handler = DynamicRendezvousHandler(
            settings=RendezvousSettings(
                run_id="run",
                min_nodes=minimum,
                max_nodes=maximum,
                timeout=RendezvousTimeout(*(timedelta(seconds=seconds) for seconds in timeouts)),
                keep_alive_interval=timedelta(seconds=interval),
                keep_alive_max_attempt=attempts,
            ),
            store=store or self.store,
            backend=backend,
            node=new_node(f"10.0.0.{len(self.handlers)}"),
            **options,
        )
        self.backends.append(backend)
        self.handlers.append(handler)
        return handler

    @property
    def state(self) -> State:
        stored = MemoryRendezvousBackend(self.space).get_state()
        return State() if stored is None else decode(stored[0], source="the test")

    def join(self, *handlers: DynamicRendezvousHandler) -> list["Future[RendezvousInfo]"]:
        return [self.pool.submit(handler.next_rendezvous) for handler in handlers]

    def end(self) -> None:
        for backend in self.backends:
            backend.fault = None
            backend.loses = False
        for handler in self.handlers:
            handler.shutdown()
        self.pool.shutdown()


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def leave(handler: DynamicRendezvousHandler) -> bool:
    """Shut down as an agent does that ends because of an exception."""
    try:
        raising(RuntimeError("the agent fails"))()
    except RuntimeError:
        return handler.shutdown()
    return False


def ranks(infos: list["Future[RendezvousInfo]"]) -> list[tuple[int, int]]:
    return [(info.result(PATIENCE).rank, info.result(PATIENCE).world_size) for info in infos]


def raising(error: BaseException) -> Callable[[], None]:
    def fault() -> None:
        raise error

    return fault


def raises(kind: type[Exception], call: Callable[[], object]) -> bool:
    try:
        call()
    except kind:
        return True
    return False


class Sink(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append(json.loads(record.getMessage()))

    def named(self, name: str) -> list[dict[str, Any]]:
        prefix = "dynamic_rendezvous.py:DynamicRendezvousHandler."
        return [event for event in self.events if event["name"] == prefix + name]
