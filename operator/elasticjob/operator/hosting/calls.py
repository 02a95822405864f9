"""Calls that are held open until there is something to tell their callers.

A held call waits under a number, the waiter. The coordinator knows the number, and whoever carries out its effects
answers by it; a call whose time is over, or whose caller has hung up, is taken back from the coordinator. How many are
held is bounded, for each pod, for each run and for all. Callers are told together in a later turn of the loop, so that
nobody calls again while the effects of a coordinator are being carried out.
"""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from elasticjob.operator.hosting.state import Answered, Run
from elasticjob.operator.hosting.timers import Batches
from elasticjob.rendezvous.coordinator import Answer, Waiter, WaitResult
from elasticjob.rendezvous.protocol import ErrorCode, ProtocolError

log = logging.getLogger(__name__)

MAX_OF_POD = 4
"""How many calls of one pod are held: it needs one, and each of a broken connection may last for its time."""

HangUp = Callable[[], None]
"""Told when a caller does not wait any more; does nothing if it is answered."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What a caller is to be told."""

    answered: Answered
    result: WaitResult


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
        self._told: list[_Told] = []
        self._pods: dict[Waiter, str] = {}
        self._of_pod: Counter[str] = Counter()
        self.count = 0
        """How many are held now."""

    def is_full(self, run: Run, pod_uid: str) -> bool:
        """Whether no further call of the pod is held open."""
        if self._of_pod[pod_uid] >= MAX_OF_POD:
            return True
        return self.count >= self._most or len(run.held) > 4 * len(run.orders.nodes) + 16

    def hold(self, run: Run, pod_uid: str, wait: float, call: Callable[[Waiter], None], answered: Answered) -> HangUp:
        """Make a call, and hold it until it is answered, for as long as the caller allows.

        Args:
            wait: Seconds after which the coordinator is told to answer with what it knows.
            call: Makes the call under the given number, and carries out what follows from it.
            answered: Told the answer, once, in a later turn of the loop.

        Raises:
            ProtocolError: The call is refused; `overloaded`, if too many are held.
        """
        if self.is_full(run, pod_uid):
            message = f"{len(run.held)} calls of this run are held open, {self._of_pod[pod_uid]} of them of this pod"
            raise ProtocolError(ErrorCode.OVERLOADED, message)
        waiter = next(self._waiters)
        run.held[waiter] = answered
        self._pods[waiter] = pod_uid
        self._of_pod[pod_uid] += 1
        self.count += 1
        try:
            call(waiter)
        except BaseException:
            self._take(run, waiter)
            raise
        if waiter in run.held:
            self._polls.add(wait, partial(self._poll_over, run, pod_uid, waiter))
        return partial(self._hung_up, run, pod_uid, waiter)

    def answer(self, run: Run, effect: Answer) -> None:
        """Answer a call, if its caller still waits."""
        self._end(run, effect.waiter, effect.result)

    def release(self, run: Run, refusal: ProtocolError) -> None:
        """Refuse all calls of a run that are held."""
        for waiter in list(run.held):
            self._end(run, waiter, refusal)

    def stop(self) -> None:
        """No call's time is over any more."""
        self._polls.stop()

    def _take(self, run: Run, waiter: Waiter) -> Answered | None:
        answered = run.held.pop(waiter, None)
        if answered is not None:
            self.count -= 1
            pod_uid = self._pods.pop(waiter)
            self._of_pod[pod_uid] -= 1
            if not self._of_pod[pod_uid]:
                del self._of_pod[pod_uid]
        return answered

    def _end(self, run: Run, waiter: Waiter, result: WaitResult) -> None:
        answered = self._take(run, waiter)
        if answered is None:
            return
        if not self._told:
            asyncio.get_running_loop().call_soon(self._tell_all)
        self._told.append(_Told(answered, result))

    def _tell_all(self) -> None:
        told, self._told = self._told, []
        for each in told:
            try:
                each.answered(each.result)
            except Exception:
                # One caller that cannot be told, for whatever fault of ours, must not keep the others waiting.
                log.exception("a call could not be answered")

    def _poll_over(self, run: Run, pod_uid: str, waiter: Waiter) -> None:
        if run.coordinator is not None and waiter in run.held:
            run.coordinator.poll_over(pod_uid, waiter, self._clock())
            self._carry_out(run)

    def _hung_up(self, run: Run, pod_uid: str, waiter: Waiter) -> None:
        if self._take(run, waiter) is not None and run.coordinator is not None and not run.is_silent:
            run.coordinator.hung_up(pod_uid, waiter, self._clock())
            self._carry_out(run)
