"""What is shown of the runs: snapshots that any thread may read, made anew a moment after something has changed."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from elasticjob.operator.hosting.state import Run
from elasticjob.rendezvous.orders import RunState, RunView

log = logging.getLogger(__name__)

SHOW_DELAY = 0.02
"""Seconds for which changes of a run are gathered before they are shown, at least."""
SHOW_DELAY_PER_NODE = 0.0001
"""The same for each of its nodes: what showing costs grows with them."""


class Views:
    """The views of all runs.

    Args:
        epoch: That of this leader, for runs whose state is not read yet.
        on_change: Called from the loop's thread with namespace and name of a job whose view changed.
        clock: Monotonic seconds.
    """

    def __init__(self, *, epoch: int, on_change: Callable[[str, str], None], clock: Callable[[], float]) -> None:
        self._epoch = epoch
        self._on_change = on_change
        self._clock = clock
        self._views: dict[str, tuple[RunView, float]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self, run_id: str) -> RunView | None:
        """What the run looks like now, for any thread; None while nothing is shown of it."""
        known = self._views.get(run_id)
        if known is None:
            return None
        view, shown_at = known
        if view.deadline_seconds is None:
            return view
        return replace(view, deadline_seconds=max(0.0, view.deadline_seconds - (self._clock() - shown_at)))

    def participants(self) -> int:
        """Members of all rounds, for any thread."""
        views = [view for view, _ in tuple(self._views.values())]
        return sum(len(view.participants) for view in views if view.state is not RunState.CLOSED)

    def start(self) -> None:
        """Begin on the running loop."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Show nothing any more."""
        self._loop = None
        self._views.clear()

    def drop(self, run_id: str) -> None:
        """Show nothing of a run any more."""
        self._views.pop(run_id, None)

    def show_soon(self, run: Run) -> None:
        """Something about the run has changed."""
        if not run.will_be_shown and self._loop is not None:
            run.will_be_shown = True
            self._loop.call_later(SHOW_DELAY + SHOW_DELAY_PER_NODE * len(run.orders.nodes), self._show, run)

    def _show(self, run: Run) -> None:
        run.will_be_shown = False
        if run.is_forgotten or run.is_silent or self._loop is None:
            return
        now, run_id = self._clock(), run.orders.run_id
        view = self._pending_view(run) if run.coordinator is None else run.coordinator.view(now)
        if run.error and not view.failed:
            view = replace(view, failed=run.error)
        if run.misdirected:
            view = replace(view, misdirected=dict(run.misdirected))
        before = self._views.get(run_id)
        self._views[run_id] = (view, now)
        if before is None or replace(before[0], deadline_seconds=None) != replace(view, deadline_seconds=None):
            try:
                self._on_change(run.orders.namespace, run.orders.job)
            except Exception:
                log.exception("a change could not be told", extra=run.log_fields)

    def _pending_view(self, run: Run) -> RunView:
        return RunView(
            run_id=run.orders.run_id,
            epoch=self._epoch,
            round=0,
            state=RunState.WAITING,
            failed=run.error,
            taken_over=False,
            details={"storeError": run.trouble} if run.trouble else {},
        )
