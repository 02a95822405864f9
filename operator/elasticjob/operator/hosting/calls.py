"""Calls that are held open until there is something to tell their callers.

A held call is a future that waits under a number, the waiter. The coordinator knows the number, and whoever carries out
its effects answers by it; a call whose time is over, or whose caller has hung up, is taken back from the coordinator.
How many are held is bounded, for each run and for all.
"""

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from elasticjob.operator.hosting.state import Run
from elasticjob.operator.hosting.timers import Batches
from elasticjob.rendezvous.coordinator import Answer, Waiter, WaitResult
from elasticjob.rendezvous.protocol import (
    Endpoint,
    ErrorCode,
    HeartbeatAnswer,
    JoinAnswer,
    ProtocolError,
)


class HeldCalls:
    """The held calls of all runs. Belongs to one event loop.

    Args:
        most: How many are held at the same time.
        carry_out: Carries out what the coordinator of a run wants done.
        clock: Monotonic seconds.
    """

    def __init__(self, *, most: int, carry_out: Callable[[Run], None], clock: Callable[[], float]) -> None:
        self._most = most
        self._carry_out = carry_out
        self._clock = clock
        self._waiters = itertools.count(1)
        self._polls = Batches()
        self.count = 0
        """How many are held now."""

    def is_full(self, run: Run) -> bool:
        """Whether no further call of the run is held open."""
        return self.count >= self._most or len(run.held) > 4 * len(run.orders.nodes) + 16

    async def hold(
        self, run: Run, pod_uid: str, wait: float, call: Callable[[Waiter], None]
    ) -> JoinAnswer | HeartbeatAnswer | Endpoint:
        """Make a call, and wait for its answer for as long as the caller allows.

        Args:
            wait: Seconds after which the coordinator is told to answer with what it knows.
            call: Makes the call under the given number, and carries out what follows from it.

        Raises:
            ProtocolError: The call is refused; `overloaded`, if too many are held.
        """
        if self.is_full(run):
            raise ProtocolError(ErrorCode.OVERLOADED, f"{len(run.held)} calls of this run are held open")
        waiter = next(self._waiters)
        future: asyncio.Future[WaitResult] = asyncio.get_running_loop().create_future()
        run.held[waiter] = future
        self.count += 1
        try:
            call(waiter)
            if not future.done():
                self._polls.add(wait, partial(self._poll_over, run, pod_uid, waiter))
            result = await future
        except asyncio.CancelledError:
            self._hung_up(run, pod_uid, waiter)
            raise
        finally:
            run.held.pop(waiter, None)
            self.count -= 1
        if isinstance(result, ProtocolError):
            raise result
        return result

    def answer(self, run: Run, effect: Answer) -> None:
        """Answer a call, if its caller still waits."""
        future = run.held.get(effect.waiter)
        if future is not None and not future.done():
            future.set_result(effect.result)

    def release(self, run: Run, refusal: ProtocolError) -> None:
        """Refuse all calls of a run that are held."""
        for future in run.held.values():
            if not future.done():
                future.set_result(refusal)

    def stop(self) -> None:
        """No call's time is over any more."""
        self._polls.stop()

    def _poll_over(self, run: Run, pod_uid: str, waiter: Waiter) -> None:
        if run.coordinator is not None and waiter in run.held:
            run.coordinator.poll_over(pod_uid, waiter, self._clock())
            self._carry_out(run)

    def _hung_up(self, run: Run, pod_uid: str, waiter: Waiter) -> None:
        if run.coordinator is not None and not run.is_lost:
            run.coordinator.hung_up(pod_uid, waiter, self._clock())
            self._carry_out(run)
