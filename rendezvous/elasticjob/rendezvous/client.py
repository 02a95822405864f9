"""The worker's end of the hosted rendezvous: joins rounds and keeps this node alive in them.

Two threads share a client. The caller's thread joins, and may block for as long as the operator says that the round is
not complete. A daemon thread sends heartbeats while this node is in a round; what `num_nodes_waiting()` and
`is_closed()` say is what the last answered heartbeat said, so neither ever blocks or raises.

Invariants:

- Time-outs of the job are the operator's to count. While it gives no answer, or says that it is not ready, the only
  limit here is a patience that outlasts its outages: at least 15 minutes since its last answer.
- Training is disturbed only by the operator's word. An operator that is away, restarts, does not know this run yet or
  answers nonsense changes nothing: the node stays in its round and calls again.
- Every call may be repeated. The incarnation names this process and `round` the last round it was told, so a join whose
  answer was lost is taken up where it was.
- No call outlives its deadline, and nothing that the heartbeat thread meets ends it.
- A node in a round has one connection, that of its heartbeats. The one for joining closes once the round is set up,
  since each costs a server with TLS a quarter of a megabyte.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from elasticjob.rendezvous.answers import RefusedError, read_answer
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.environment import new_incarnation
from elasticjob.rendezvous.errors import RendezvousClosedError, RendezvousConnectionError, RendezvousError
from elasticjob.rendezvous.heartbeat import Heartbeat
from elasticjob.rendezvous.http_client import HttpCallError, HttpClient
from elasticjob.rendezvous.orders import CloseReason
from elasticjob.rendezvous.pace import Outage, full_jitter
from elasticjob.rendezvous.protocol import (
    Endpoint,
    EndpointRequest,
    ErrorCode,
    Failure,
    JoinAnswer,
    JoinFormed,
    JoinRequest,
    JoinWaiting,
    Json,
    LeaveOutcome,
    LeaveRequest,
    Member,
    ProtocolError,
    join_answer_from_json,
    shorten,
)

log = logging.getLogger(__name__)

JOIN_TIMEOUT = 600.0
"""Default join time-out in seconds."""
LEAST_PATIENCE_SECONDS = 900.0
"""For so long without an answer of the operator no call gives up, however short the join time-out is. An outage of 10
minutes is to be survived, by every node and with time to find the operator again."""
POLL_SECONDS = 10.0
"""How long the operator may hold an answer. Well below the 15 s after which a silent node counts as lost."""
CALL_SECONDS = 5.0
"""What a call may take over and above the time that the operator may hold it."""
LEAVE_SECONDS = 3.0
"""What saying good-bye may take."""
LEAST_POLL_SECONDS = 0.1
"""Pause between two polls, whatever the server answers and however fast."""
REMIND_SECONDS = 60.0
"""How often a node that waits says what for."""
MAX_BACKOFF_SECONDS = 5.0

_FINAL = frozenset({ErrorCode.FORBIDDEN, ErrorCode.INVALID, ErrorCode.TOO_LARGE, ErrorCode.UNSUPPORTED_PROTOCOL})
T = TypeVar("T")


class RunClosedError(RendezvousClosedError):
    """The run has ended. `reason` tells how, as a value of `CloseReason`; `message` is the operator's."""

    def __init__(self, text: str, *, reason: str, message: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.message = message

    @property
    def succeeded(self) -> bool:
        """Whether the run ended well, so that this node has nothing left to do."""
        return self.reason == CloseReason.SUCCEEDED.value


class NodeFencedError(RendezvousClosedError):
    """The operator has given this pod up and replaced it. It can never join again, while the run goes on without it."""


class StaleRoundError(RendezvousError):
    """The round is not the newest any more: join again."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """A formed round that this node is in. `members` are in the order of their ranks."""

    round: int
    rank: int
    members: tuple[Member, ...]

    @property
    def world_size(self) -> int:
        """Number of nodes."""
        return len(self.members)


class HostedRendezvousClient:
    """Takes part in one run.

    Args:
        endpoint: Where the operator's rendezvous server listens.
        run_id: Identifies the run.
        address: Where the other nodes reach this one.
        token_file: This pod's token, read for every call.
        ca_file: Certificates to check the server against, read again after a change.
        join_timeout: The join time-out of the job in seconds. While the operator answers that a node has to wait, it is
            the operator who counts it. Here it only makes `patience` longer, never shorter than 15 minutes.
    """

    def __init__(
        self,
        *,
        endpoint: ServerEndpoint,
        run_id: str,
        address: str,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        join_timeout: float = JOIN_TIMEOUT,
    ) -> None:
        if join_timeout <= 0:
            raise ValueError(f"join_timeout is {join_timeout:g} s; it must be more than 0")
        self._endpoint = endpoint
        self._run_id = run_id
        self._address = address
        self._join_timeout = join_timeout
        self._incarnation = new_incarnation()
        self._path = f"/v1/runs/{run_id}"
        self._http = HttpClient(endpoint, token_file=token_file, ca_file=ca_file)
        self._last_round = 0
        self._heartbeat = Heartbeat(
            HttpClient(endpoint, token_file=token_file, ca_file=ca_file),
            path=self._path,
            incarnation=self._incarnation,
        )

    @property
    def run_id(self) -> str:
        """Identifies the run."""
        return self._run_id

    @property
    def address(self) -> str:
        """Where the other nodes reach this one."""
        return self._address

    @property
    def join_timeout(self) -> float:
        """Seconds within which a round is to come about, of which the operator's absence is no part."""
        return self._join_timeout

    @property
    def patience(self) -> float:
        """Seconds since the last answer of an operator that is away, or not ready, after which a call gives up."""
        return max(self._join_timeout, LEAST_PATIENCE_SECONDS)

    @property
    def incarnation(self) -> str:
        """Names this process."""
        return self._incarnation

    def join(self, failure: Failure | None = None) -> Round:
        """Wait until a round newer than the last one has formed with this node in it.

        Args:
            failure: How this node's workers failed, if that is why it joins again.

        Raises:
            RunClosedError: The run has ended.
            NodeFencedError: This pod was given up.
            RendezvousConnectionError: No answer for as long as `patience`, or one that says that no call of this pod
                will ever succeed. The message names the endpoint and the cause.
        """
        self._heartbeat.pause()
        body = JoinRequest(
            incarnation=self._incarnation,
            address=self._address,
            pid=os.getpid(),
            round=self._last_round,
            failure=failure,
            wait=POLL_SECONDS,
        ).to_json()
        formed = self._poll_until_formed(body)
        self._last_round = formed.round
        self._heartbeat.resume(formed.round)
        return Round(round=formed.round, rank=formed.rank, members=formed.members)

    def publish_endpoint(self, round_number: int, address: str, port: int) -> None:
        """Tell the other members of a round where the store of rank 0 listens. Heartbeats repeat it from now on.

        Raises:
            StaleRoundError: A newer round has formed.
            RunClosedError, NodeFencedError, RendezvousConnectionError: As for `join()`.
        """
        endpoint = Endpoint(address=address, port=port)
        self._heartbeat.announce(round_number, endpoint)
        body = EndpointRequest(incarnation=self._incarnation, endpoint=endpoint).to_json()
        path = f"{self._path}/rounds/{round_number}/endpoint"
        self._until_answered("PUT", path, body, lambda _: None, in_round=True)
        self._http.close()

    def fetch_endpoint(self, round_number: int) -> tuple[str, int]:
        """Wait until rank 0 of a round has published where its store listens.

        Returns:
            Address and port.

        Raises:
            StaleRoundError: A newer round has formed or is about to.
            RunClosedError, NodeFencedError, RendezvousConnectionError: As for `join()`. Also if rank 0 publishes
                nothing for so long.
        """
        path = f"{self._path}/rounds/{round_number}/endpoint?wait={POLL_SECONDS:g}"
        endpoint = self._until_answered("GET", path, None, Endpoint.from_json, in_round=True)
        self._http.close()
        return endpoint.address, endpoint.port

    def num_nodes_waiting(self) -> int:
        """More than 0 exactly if this node should stop its workers and join again. Never blocks, never raises."""
        return self._heartbeat.nodes_waiting

    def is_closed(self) -> bool:
        """Whether the operator said that the run has ended. Never blocks, never raises."""
        return self._heartbeat.closed is not None

    def leave(
        self, outcome: LeaveOutcome, *, exit_code: int | None = None, message: str = "", timeout: float = LEAVE_SECONDS
    ) -> bool:
        """Tell the operator that this node goes, and end the heartbeats. Never raises and never closes the run.

        Args:
            outcome: Why the node goes.
            exit_code: Exit code of the workers, if they failed.
            message: For people.
            timeout: Seconds that this may take.

        Returns:
            Whether the operator was told in time.
        """
        body = LeaveRequest(
            incarnation=self._incarnation,
            round=self._last_round,
            outcome=outcome,
            exit_code=exit_code,
            message=shorten(message),
        ).to_json()
        self._http.close()
        return self._heartbeat.finish(body, timeout=timeout)

    def _poll_until_formed(self, body: Json) -> JoinFormed:
        reminded = time.monotonic()
        while True:
            started = time.monotonic()
            answer: JoinAnswer = self._until_answered("POST", f"{self._path}/join", body, join_answer_from_json)
            if isinstance(answer, JoinFormed):
                return answer
            now = time.monotonic()
            if now - reminded >= REMIND_SECONDS:
                reminded = now
                log.warning("%s: %s", self._endpoint, _waiting_text(answer))
            time.sleep(max(0.0, started + LEAST_POLL_SECONDS - now))

    def _until_answered(
        self,
        method: str,
        path: str,
        body: Json | None,
        reader: Callable[[object], T],
        *,
        in_round: bool = False,
    ) -> T:
        outage = Outage(log, f"rendezvous at {self._endpoint}")
        deadline = time.monotonic() + self.patience
        attempt = 0
        while True:
            try:
                answer = self._http.call(method, path, body, timeout=POLL_SECONDS + CALL_SECONDS)
                value = read_answer(answer, reader)
            except HttpCallError as error:
                cause, least_pause = str(error), 0.0
            except RefusedError as error:
                self._raise_if_final(error.refusal, in_round=in_round)
                cause, least_pause = str(error), error.retry_after
            else:
                outage.end()
                return value
            if in_round and self.num_nodes_waiting() > 0:
                raise StaleRoundError(f"rendezvous at {self._endpoint}: a newer round is to form")
            pause = max(least_pause, full_jitter(attempt, cap=MAX_BACKOFF_SECONDS))
            if time.monotonic() + pause >= deadline:
                raise RendezvousConnectionError(
                    f"rendezvous at {self._endpoint} has given no answer for {self.patience:.0f} s: {cause}"
                )
            outage.note(cause)
            time.sleep(pause)
            attempt += 1

    def _raise_if_final(self, refusal: ProtocolError, *, in_round: bool) -> None:
        place = f"rendezvous at {self._endpoint}"
        if refusal.code is ErrorCode.CLOSED:
            reason = "" if refusal.closed is None else refusal.closed.reason
            message = refusal.message if refusal.closed is None else refusal.closed.message or refusal.message
            raise RunClosedError(f"{place}: the run is closed ({reason}): {message}", reason=reason, message=message)
        if refusal.code is ErrorCode.FENCED:
            raise NodeFencedError(f"{place}: this pod was given up and may not join again: {refusal.message}")
        if in_round and refusal.code is ErrorCode.STALE_ROUND:
            raise StaleRoundError(f"{place}: {refusal.message}")
        if refusal.code in _FINAL:
            raise RendezvousConnectionError(f"{place} refuses this node: {refusal}")


def _waiting_text(answer: JoinWaiting) -> str:
    text = f"waiting with {answer.joined} of {answer.expected} nodes (at least {answer.min_nodes})"
    if answer.deadline_seconds is not None:
        text += f", {answer.deadline_seconds:.0f} s left"
    return f"{text}: {answer.message}" if answer.message else text
