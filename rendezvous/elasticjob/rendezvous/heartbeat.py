"""The thread that keeps this node alive in its round, and that remembers what the operator last said.

The operator holds an answer until the next beat is due, and sends it the moment something changes, so members hear of
a change at once over the connection that they have anyway. Beats start one interval after the start of the last one, or
a little earlier: by how much is random for each node and round, so that the nodes of a job do not beat in step. Within
a round all beats of a node are the same bytes, which the operator knows again without reading them.

The thread is a daemon and meets every exception: it says once that an outage began, changes nothing else, and goes on.
An answer counts only for the round in which the question was asked. Saying good-bye is done by this thread too, since
the caller may be an exit handler that can start none; a caller never waits for it longer than it wants to.
"""

import logging
import random
import threading
import time
from dataclasses import replace

from elasticjob.rendezvous.answers import RefusedError, read_answer
from elasticjob.rendezvous.http_client import HttpClient
from elasticjob.rendezvous.pace import Outage
from elasticjob.rendezvous.protocol import (
    MAX_WAIT_SECONDS,
    Closed,
    Endpoint,
    ErrorCode,
    HeartbeatAnswer,
    HeartbeatRequest,
    Json,
    ProtocolError,
)

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
"""Time between two beats until the server has told another."""
MAX_INTERVAL_SECONDS = 60.0
LEAST_PAUSE_SECONDS = 0.05
"""Shortest pause between two beats, whatever the server says and however fast it answers."""
CALL_SECONDS = 5.0
"""What a call may take over and above the time that the operator may hold it."""
FIRST_SECONDS = 0.5
"""Longest time until the first beat in a round."""
EARLIEST = 0.9
"""Beats come after 90 to 100 % of the interval."""


class Heartbeat:
    """Beats for one node while it is in a round.

    Args:
        http: Used by the thread alone.
        path: Path of the run.
        incarnation: Names this process.
    """

    def __init__(self, http: HttpClient, *, path: str, incarnation: str) -> None:
        self._http = http
        self._path = path
        self._incarnation = incarnation
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._round = 0
        self._beating = False
        self._endpoint: Endpoint | None = None
        self._nodes_waiting = 0
        self._closed: Closed | None = None
        self._farewell: Json | None = None
        self._finished = False
        self._is_calling = False
        self._told = False
        self._interval = INTERVAL_SECONDS
        self._share = 1.0
        self._due = 0.0
        self._outage = Outage(log, "the operator's rendezvous (training goes on)")

    @property
    def nodes_waiting(self) -> int:
        """More than 0 exactly if the operator last said that this node should join again."""
        return self._nodes_waiting

    @property
    def closed(self) -> Closed | None:
        """Set once the operator said that the run has ended."""
        return self._closed

    def pause(self) -> None:
        """The node is about to join: it is in no round. Starts the thread if need be."""
        with self._changed:
            self._beating = False
            self._endpoint = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="elasticjob-heartbeat", daemon=True)
                self._thread.start()

    def resume(self, round_number: int) -> None:
        """The node is in this round now. The first beat comes soon, and with it news since the round formed.

        Not at once: all nodes are told of a round at the same moment, and each needs a connection for its beats.
        """
        with self._changed:
            self._round = round_number
            self._nodes_waiting = 0
            self._beating = True
            self._share = random.uniform(EARLIEST, 1.0)
            self._due = time.monotonic() + random.uniform(0.0, min(FIRST_SECONDS, self._interval))
            self._changed.notify_all()

    def announce(self, round_number: int, endpoint: Endpoint) -> None:
        """From now on repeat where the store of rank 0 listens, as long as the node is in this round."""
        with self._changed:
            if round_number == self._round:
                self._endpoint = endpoint

    def finish(self, farewell: Json, *, timeout: float) -> bool:
        """Stop beating, and try to tell the operator good-bye, once.

        Args:
            farewell: Body of the call.
            timeout: Longest time in seconds that this takes; after it the thread is left alone.

        Returns:
            Whether the operator was told. True as well if it never heard of this node.
        """
        with self._changed:
            if self._thread is None:
                return True
            self._beating = False
            self._farewell = self._farewell or {**farewell, "timeout": timeout}
            if self._is_calling:
                # The operator may hold the answer for longer than the caller wants to wait.
                self._http.interrupt()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._finished, timeout)
            return self._told

    def _run(self) -> None:
        while not self._finished:
            try:
                self._step()
            except Exception as error:
                # Whatever it is: a node without heartbeats is a lost node.
                self._failed(error)

    def _step(self) -> None:
        with self._changed:
            self._is_calling = False
            if not self._has_work():
                self._changed.wait(self._until_due())
            farewell, is_due = self._farewell, self._beating and self._until_due() == 0.0
            request, pause = self._request(), self._interval * self._share
            self._is_calling = farewell is None and is_due
        if farewell is not None:
            self._say_farewell(farewell)
        elif is_due:
            self._beat(request, pause)

    def _has_work(self) -> bool:
        return self._farewell is not None or (self._beating and self._until_due() == 0.0)

    def _until_due(self) -> float | None:
        return max(0.0, self._due - time.monotonic()) if self._beating else None

    def _request(self) -> HeartbeatRequest:
        return HeartbeatRequest(incarnation=self._incarnation, round=self._round, endpoint=self._endpoint)

    def _beat(self, request: HeartbeatRequest, pause: float) -> None:
        started = time.monotonic()
        # Failing must not make the thread spin: the next beat is scheduled before this one is tried.
        self._schedule(started + pause)
        body = replace(request, wait=round(min(pause, MAX_WAIT_SECONDS), 3)).to_json()
        raw = self._http.call("POST", f"{self._path}/heartbeat", body, timeout=pause + CALL_SECONDS)
        try:
            self._take(request.round, read_answer(raw, HeartbeatAnswer.from_json))
            self._schedule(started + min(pause, self._interval))
        except RefusedError as error:
            if not self._take_refusal(request.round, error.refusal):
                self._schedule(time.monotonic() + max(pause, error.retry_after))
                raise
        self._outage.end()

    def _schedule(self, due: float) -> None:
        with self._changed:
            self._due = max(due, time.monotonic() + LEAST_PAUSE_SECONDS)

    def _take(self, asked_in: int, answer: HeartbeatAnswer) -> None:
        with self._changed:
            self._interval = min(answer.interval_seconds, MAX_INTERVAL_SECONDS)
            self._closed = self._closed or answer.closed
            if self._beating and asked_in == self._round:
                rejoin = answer.evicted or answer.round > asked_in
                self._nodes_waiting = max(answer.waiting, 1) if rejoin else answer.waiting

    def _take_refusal(self, asked_in: int, refusal: ProtocolError) -> bool:
        """Act on a refusal that is a message to this node. Returns False for one that says that the call was bad."""
        with self._changed:
            if refusal.code is ErrorCode.CLOSED:
                self._closed = self._closed or refusal.closed or Closed(reason="", message=refusal.message)
                return True
            if refusal.code in (ErrorCode.FENCED, ErrorCode.STALE_ROUND):
                # A node that was given up must not train beside the one that has its place; joining tells it so.
                if self._beating and asked_in == self._round:
                    self._nodes_waiting = max(self._nodes_waiting, 1)
                return True
        return False

    def _say_farewell(self, farewell: Json) -> None:
        timeout = farewell.pop("timeout")
        try:
            raw = self._http.call("POST", f"{self._path}/leave", farewell, timeout=timeout)
            read_answer(raw, lambda _: None)
            told = True
        except Exception as error:
            log.info("could not tell the operator that this node leaves: %s", error)
            told = False
        with self._changed:
            self._told, self._finished = told, True
            self._changed.notify_all()
        self._http.close()

    def _failed(self, error: Exception) -> None:
        if self._farewell is not None:
            return
        try:
            self._outage.note(error)
        except Exception:
            # A log handler that raises, or no memory for the record. The pause keeps the thread from spinning.
            time.sleep(LEAST_PAUSE_SECONDS)
