"""Erases states of jobs that were deleted while no operator ran, where the cluster does not see to that.

When a run is first served from some etcd, the states there are looked through once, in the background: their names in
pages, then one by one those that no run here uses. A state is erased if

- this installation wrote it last (`state_owner`): those of other clusters and operators stay;
- the API server says that its job is not there, or another one of its name. It is asked anew, so that neither a cache
  nor a change of the watched namespaces matters; where it may not be asked, the state stays;
- it is still the very value that was read.

Nothing waits for this. It has a thread of its own, one etcd is looked through at a time, and what fails is tried again
a few times after growing pauses, and then left to the next leader.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from elasticjob.operator.errors import Forbidden, NotFound, NotLeader
from elasticjob.operator.hosting.state_owner import StateOwner, owner_of
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.ports import ClusterPort
from elasticjob.operator.resources import JOBS
from elasticjob.rendezvous.backend import Token
from elasticjob.rendezvous.orders import RunOrders

log = logging.getLogger(__name__)
T = TypeVar("T")

PAUSES = (5.0, 60.0, 600.0)
"""Pauses in seconds before each attempt; the first one leaves a new leader to its runs."""
LONGEST = 600.0
"""Seconds that one attempt may take."""
PAGE = 500
"""So many names are asked for at once."""
MOST_PLACES = 64
"""So many places are looked through in one leadership; users may name any number."""


class SweptStates(Protocol):
    """The states of one place. Called from a thread; see `elasticjob.rendezvous.backends.etcd_states`."""

    def names(self, *, after: str, limit: int) -> Sequence[str]:
        """At most `limit` names in order, beginning behind one; those of the operator's runs are UIDs of jobs."""

    def read(self, name: str) -> tuple[bytes, Token] | None:
        """What is stored under the name, and its token."""

    def erase(self, token: Token) -> bool:
        """Remove what was read, unless it has changed since."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where states are kept."""

    endpoint: str
    protocol: str
    prefix: str

    @classmethod
    def of(cls, orders: RunOrders) -> "Place":
        """The place that a job's settings name."""
        conf = orders.backend_conf
        return cls(endpoint=conf.get("endpoint", ""), protocol=conf.get("protocol", ""), prefix=conf.get("prefix", ""))


class StateSweep:
    """Looks through each place once.

    Args:
        installation: Whose states are erased.
        open_states: The states of the place that a job names; called from a thread.
        job_uid: UID of the job that a state names, None if there is none. Raises `Forbidden` if that cannot be known.
        is_served: Whether a run is served here, by its id.
        require_leadership: Raises `NotLeader` if this process may not write (any more).
    """

    def __init__(
        self,
        *,
        installation: str,
        open_states: Callable[[RunOrders], SweptStates],
        job_uid: Callable[[StateOwner], Awaitable[str | None]],
        is_served: Callable[[str], bool],
        require_leadership: Callable[[], object],
        metrics: Metrics,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        self._installation = installation
        self._open_states = open_states
        self._job_uid = job_uid
        self._is_served = is_served
        self._require_leadership = require_leadership
        self._metrics = metrics
        self._pauses = pauses
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state-sweep")
        self._turn = asyncio.Lock()
        self._places: set[Place] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, orders: RunOrders) -> None:
        """A run is served from the place that its orders name. Thread-safe."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._begin, orders)

    async def stop(self) -> None:
        """Begin nothing new. An access under way is not waited for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self, orders: RunOrders) -> None:
        place = Place.of(orders)
        if place in self._places or len(self._places) >= MOST_PLACES:
            return
        self._places.add(place)
        task = asyncio.create_task(self._until_done(place, orders), name=f"sweep {place.endpoint}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _until_done(self, place: Place, orders: RunOrders) -> None:
        cause = ""
        for pause in self._pauses:
            await asyncio.sleep(pause)
            try:
                async with self._turn, asyncio.timeout(LONGEST):
                    await self._look_through(orders)
            except NotLeader:
                return
            except Exception as error:
                cause = f"{type(error).__name__}: {error}"
            else:
                return
        log.warning("states of deleted jobs may stay behind in %s: %s", place, cause)

    async def _look_through(self, orders: RunOrders) -> None:
        states = await self._in_thread(lambda: self._open_states(orders))
        last = ""
        while page := await self._in_thread(partial(states.names, after=last, limit=PAGE)):
            for name in page:
                if not self._is_served(name):
                    await self._look_at(states, name)
            last = page[-1]

    async def _look_at(self, states: SweptStates, name: str) -> None:
        found = await self._in_thread(lambda: states.read(name))
        owner = None if found is None else owner_of(found[0])
        if found is None or owner is None or owner.installation != self._installation:
            return
        try:
            is_there = await self._job_uid(owner) == name
        except Forbidden:
            return
        if not is_there and await self._in_thread(lambda: states.erase(found[1])):
            self._metrics.states_swept.inc()
            fields = {"job": f"{owner.namespace}/{owner.job}", "run": name}
            log.info("erased the state of a job that is gone", extra=fields)

    async def _in_thread(self, access: Callable[[], T]) -> T:
        def guarded() -> T:
            self._require_leadership()
            return access()

        return await self._loop.run_in_executor(self._thread, guarded)


async def job_uid(cluster: ClusterPort, owner: StateOwner) -> str | None:
    """UID of the job of that name, as the API server knows it now; None if there is none.

    Raises:
        Forbidden: It may not be read.
        ClusterError: The API server cannot be asked.
    """
    try:
        job = await cluster.get(JOBS, namespace=owner.namespace, name=owner.job)
    except NotFound:
        return None
    return str(job["metadata"]["uid"])
