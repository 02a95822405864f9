"""Reads and writes the states of runs off the event loop, one access a run at a time.

An access that does not end is never given up, since it may still take effect; it is only reported as trouble. What
fails for now is repeated after a growing pause until its fate is known.

A newer epoch in a state silences its run at once; whether somebody else leads, the lease says, read after the state. An
epoch that was never given out makes that one state corrupt, and touches no other run.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from elasticjob.operator.metrics import Metrics
from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.coordinator import Coordinator, Waiter, WaitResult
from elasticjob.rendezvous.coordinator.fenced_store import FencedStore, LeadershipLostError
from elasticjob.rendezvous.errors import RendezvousStateError
from elasticjob.rendezvous.orders import RunOrders
from elasticjob.rendezvous.state import State

log = logging.getLogger(__name__)

BackendFactory = Callable[[RunOrders], RendezvousBackend]
Answered = Callable[[WaitResult], None]
"""Told the answer to a call, or its refusal, once."""
T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Pause in seconds after an access that failed; doubled each time."""
CORRUPT_PAUSE = 10.0
"""Pause in seconds before a corrupt state is read again."""
ERASE_PAUSES = (0.0, 1.0, 10.0, 60.0)
"""Pauses in seconds before each attempt to remove a state."""
LEASE_PAUSE = 1.0
"""Pause in seconds before the lease is asked again that could not be read."""
VERIFY_INTERVAL = 1.0
"""Shortest time in seconds between two checks of one run's stored state that callers can provoke."""


@dataclass(kw_only=True, eq=False)
class Run:
    """One hosted run. Without a coordinator its state is not taken over yet: `error` says why it cannot be, and
    `trouble` why it could not be so far. One that is silent is not answered: another operator may lead, and does if the
    run is lost."""

    orders: RunOrders
    store: FencedStore | None = None
    store_settings: tuple[str, dict[str, str]] | None = None
    coordinator: Coordinator | None = None
    error: str = ""
    trouble: str = ""
    is_silent: bool = False
    is_lost: bool = False
    is_forgotten: bool = False
    access: asyncio.Lock = field(default_factory=asyncio.Lock)
    held: dict[Waiter, Answered] = field(default_factory=dict)
    misdirected: dict[str, str] = field(default_factory=dict)
    will_be_shown: bool = False
    verified_at: float = float("-inf")
    is_verifying: bool = False

    @property
    def log_fields(self) -> dict[str, object]:
        """What lines about this run carry in the log."""
        fields: dict[str, object] = {"job": f"{self.orders.namespace}/{self.orders.job}", "run": self.orders.run_id}
        return fields if self.coordinator is None else {**fields, "round": self.coordinator.round}


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the host is told, on the loop.

    Args:
        taken_over: The state, with our epoch in it.
        saved: The state that was to be saved is stored.
        in_trouble: An access failed, or does not end; it goes on.
        corrupt: The stored object cannot be used; it is left as it is. The run need not be silent any more.
        in_doubt: The state has a newer epoch: the run is to be silent until it is corrupt or lost.
        lost: Somebody else leads.
    """

    taken_over: Callable[[Run, State], None]
    saved: Callable[[Run], None]
    in_trouble: Callable[[Run, str], None]
    corrupt: Callable[[Run, str], None]
    in_doubt: Callable[[Run], None]
    lost: Callable[[Run, str], None]


class StateKeeper:
    """All accesses to stored states.

    Args:
        backend_factory: Makes the backend of a run; called in a thread of the pool.
        require_leadership: Raises if this process may not write (any more); asked before each access.
        holds_lease: Reads the lease and tells whether it is this leader's, with our epoch. Raises if it cannot be read.
        patience: Seconds after which an access that does not end is reported.
    """

    def __init__(
        self,
        *,
        epoch: int,
        backend_factory: BackendFactory,
        require_leadership: Callable[[], object],
        holds_lease: Callable[[], Awaitable[bool]],
        threads: int,
        patience: float,
        told: Told,
        metrics: Metrics,
    ) -> None:
        self._epoch = epoch
        self._backend_factory = backend_factory
        self._require_leadership = require_leadership
        self._holds_lease = holds_lease
        self._asks_lease = asyncio.Lock()
        self._is_replaced = False
        self._patience = patience
        self._told = told
        self._metrics = metrics
        self._threads = threads
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._shares: WeakValueDictionary[tuple[str, str, str], asyncio.Semaphore] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    def take_over(self, run: Run) -> None:
        """Read the state of a run and put our epoch into it."""

        async def work() -> None:
            state = await self._until_done(run, lambda: self._store(run).take_over())
            if state is not None:
                self._metrics.state_writes.inc()
                self._told.taken_over(run, state)

        self._spawn(work(), f"take over {run.orders.run_id}")

    def save(self, run: Run, state: State) -> None:
        """Store the state of a run."""

        def access() -> bool:
            self._store(run).save(state)
            return True

        async def work() -> None:
            if await self._until_done(run, access):
                self._metrics.state_writes.inc()
                self._told.saved(run)

        self._spawn(work(), f"save {run.orders.run_id}")

    def erase(self, run: Run) -> None:
        """Remove the state of a run that is over, where nobody else does. After a while it is given up, and told."""

        async def work() -> None:
            for pause in ERASE_PAUSES:
                await asyncio.sleep(pause)
                try:
                    await self._in_pool(run, lambda: self._store(run).erase())
                except Exception as error:
                    cause = _cause(error)
                else:
                    return
            log.warning("the state of a job that is gone stays behind: %s", cause, extra=run.log_fields)

        self._spawn(work(), f"erase {run.orders.run_id}")

    def verify(self, run: Run) -> None:
        """Check, not too often and once at a time, that the state of a run is still ours."""
        now = asyncio.get_running_loop().time()
        if run.is_verifying or now - run.verified_at < VERIFY_INTERVAL:
            return
        run.is_verifying, run.verified_at = True, now

        async def work() -> None:
            try:
                await self._in_pool(run, self._store(run).verify, is_shown=False)
            except LeadershipLostError as error:
                await self._is_lost(run, error)
            except Exception as error:
                # Nothing is to be stored, so this is no trouble of the run, and nothing would end it.
                log.warning("state of a run: not verified: %s", _cause(error), extra=run.log_fields)
            finally:
                run.is_verifying = False

        self._spawn(work(), f"verify {run.orders.run_id}")

    async def stop(self) -> None:
        """Begin nothing new. Accesses under way are not waited for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    async def _until_done(self, run: Run, access: Callable[[], T]) -> T | None:
        """Repeat an access until it succeeds. None if the run is lost or forgotten first."""
        pause = FIRST_PAUSE
        while not run.is_forgotten and not run.is_lost:
            try:
                return await self._in_pool(run, lambda: self._counted(access))
            except LeadershipLostError as error:
                if await self._is_lost(run, error):
                    return None
                await asyncio.sleep(CORRUPT_PAUSE)
            except (RendezvousStateError, ValueError) as error:
                self._told.corrupt(run, str(error))
                await asyncio.sleep(CORRUPT_PAUSE)
            except Exception as error:
                self._told.in_trouble(run, _cause(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        return None

    async def _is_lost(self, run: Run, error: LeadershipLostError) -> bool:
        """Find out whether another operator leads. A lease that shows our epoch after the state was read says no."""
        self._told.in_doubt(run)
        if await self._is_led_by_another():
            self._told.lost(run, str(error))
            return True
        self._told.corrupt(run, error.if_foreign)
        return False

    async def _is_led_by_another(self) -> bool:
        async with self._asks_lease:
            while not self._is_replaced:
                try:
                    self._is_replaced = not await self._holds_lease()
                except Exception as trouble:
                    log.warning("a state has a newer epoch, and the lease cannot be read: %s", _cause(trouble))
                    await asyncio.sleep(LEASE_PAUSE)
                else:
                    break
            return self._is_replaced

    def _counted(self, access: Callable[[], T]) -> T:
        """Count a refusal in the thread that meets it: a leader that was paused ends all else when it wakes up."""
        try:
            return access()
        except LeadershipLostError:
            self._metrics.stale_writes_refused.inc()
            raise

    def _store(self, run: Run) -> FencedStore:
        settings = (run.orders.backend, dict(run.orders.backend_conf))
        is_corrected = run.coordinator is None and settings != run.store_settings
        if run.store is None or is_corrected:
            backend = self._backend_factory(run.orders)
            run.store_settings = settings
            source = f"the {backend.name} rendezvous state of job {run.orders.namespace}/{run.orders.job}"
            run.store = FencedStore(backend, source=source, epoch=self._epoch)
        return run.store

    def _pool(self, backend: str) -> ThreadPoolExecutor:
        """The threads of one kind of backend: a server that does not answer holds up only runs that use its kind."""
        if backend not in self._pools:
            self._pools[backend] = ThreadPoolExecutor(self._threads, thread_name_prefix=f"rendezvous-{backend}")
        return self._pools[backend]

    def _share(self, backend: str, kind: str, name: str) -> asyncio.Semaphore:
        """Half of the threads of a pool, for all who have something in common. Kept as long as somebody uses it."""
        share = self._shares.get((backend, kind, name))
        if share is None:
            share = self._shares[backend, kind, name] = asyncio.Semaphore(max(1, self._threads // 2))
        return share

    async def _in_turn(self, orders: RunOrders, access: Callable[[], T]) -> T:
        """Call in a thread. Neither the jobs of one namespace nor a server that jobs name may hold all threads."""
        pool, loop = self._pool(orders.backend), asyncio.get_running_loop()
        endpoint = orders.backend_conf.get("endpoint")
        if not endpoint:
            return await loop.run_in_executor(pool, access)
        # In this order, who waits for a server that is shared holds up its own namespace alone.
        async with (
            self._share(orders.backend, "namespace", orders.namespace),
            self._share(orders.backend, "endpoint", endpoint),
        ):
            return await loop.run_in_executor(pool, access)

    async def _in_pool(self, run: Run, access: Callable[[], T], *, is_shown: bool = True) -> T:
        def guarded() -> T:
            self._require_leadership()
            return access()

        async with run.access:
            turn = asyncio.create_task(self._in_turn(run.orders, guarded))
            try:
                done, _ = await asyncio.wait({turn}, timeout=self._patience)
                if not done and is_shown:
                    self._told.in_trouble(run, f"no answer within {self._patience:g} s")
                return await turn
            finally:
                turn.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.critical("%s failed", task.get_name(), exc_info=task.exception())


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
