"""What keeps nodes from starting, in the words of those who refuse: the API server, the scheduler, the kubelet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.operator import constants
from elasticjob.rendezvous.wording import counted

WORDS_LIMIT = 300
"""Longest quoted explanation, in characters."""
SHOWN = 3
"""So many obstacles are spelt out; the others are counted."""
FIRST_RETRY = 1.0
LONGEST_RETRY = 60.0
"""Seconds between attempts at a refused call."""

IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
START_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"}
)


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """One thing in the way. `reason` is that of the condition, `message` names what is blocked and why."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class ApiProblem:
    """A call for this job that the API server refused, and that has not succeeded since.

    Args:
        target: Kind and name, e.g. `Pod/digits-1-0`; one problem a target.
        status: HTTP status code, 0 if there was no answer.
        reason: The API's reason, e.g. `Forbidden`.
        message: The API's own words.
        at: Monotonic seconds of the last refusal.
        count: How often in a row it was refused.
    """

    target: str
    status: int
    reason: str
    message: str
    at: float
    count: int = 1

    @property
    def retry_at(self) -> float:
        """Monotonic seconds from which on the call may be made again: doubling pauses, at most a minute."""
        return self.at + min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(self.count - 1, 10))

    @property
    def passes(self) -> bool:
        """Whether nobody refused anything: what is in the way is about to be removed by Kubernetes itself."""
        return self.reason == constants.REASON_PREDECESSOR

    @property
    def permanent(self) -> bool:
        """Whether the object itself is at fault, so that no retry can help.

        Admission policies refuse with the same status 422 but can be lifted; only validation says `is invalid:`.
        """
        return self.status == 422 and " is invalid: " in self.message


def pod_obstacle(pod: Mapping[str, Any]) -> Obstacle | None:
    """What keeps a pod from starting, or None. The message begins with the state of the pod."""
    status = pod.get("status") or {}
    if status.get("phase", "Pending") not in ("Pending", "Running"):
        return None
    return _waiting_container(status) or _unscheduled(status)


def _unscheduled(status: Mapping[str, Any]) -> Obstacle | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            words = condition.get("message") or condition.get("reason") or "not scheduled"
            return Obstacle(
                reason=constants.REASON_UNSCHEDULABLE, message=f"is Pending{_since(condition)}: {_words(words)}"
            )
    return None


def _since(condition: Mapping[str, Any]) -> str:
    stamp = condition.get("lastTransitionTime")
    return f" since {stamp}" if isinstance(stamp, str) and stamp else ""


def _waiting_container(status: Mapping[str, Any]) -> Obstacle | None:
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        word = waiting.get("reason")
        if word in IMAGE_REASONS or word in START_REASONS:
            reason = constants.REASON_IMAGE_PULL if word in IMAGE_REASONS else constants.REASON_CONTAINER_NOT_STARTED
            detail = f": {_words(waiting['message'])}" if waiting.get("message") else ""
            return Obstacle(reason=reason, message=f"container {container.get('name')} has {word}{detail}")
    return None


def refusals(problems: Iterable[ApiProblem]) -> tuple[Obstacle, ...]:
    """What the API server refuses, in its own words."""
    return tuple(_refusal(one) for one in sorted(problems, key=lambda one: (one.passes, one.target)))


def _refusal(problem: ApiProblem) -> Obstacle:
    if problem.passes:
        return Obstacle(reason=problem.reason, message=problem.message)
    message = f"{problem.target} was refused: {_words(problem.message)}"
    return Obstacle(reason=constants.REASON_CREATION_REFUSED, message=message)


def joined_messages(obstacles: Iterable[Obstacle]) -> str:
    """The first few obstacles as sentences; equal ones once."""
    messages = list(dict.fromkeys(one.message for one in obstacles))
    left = len(messages) - SHOWN
    more = f" {counted(left, 'more node')} {'is' if left == 1 else 'are'} not in yet." if left > 0 else ""
    return " ".join(f"{message.rstrip('.')}." for message in messages[:SHOWN]) + more


def _words(text: str) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= WORDS_LIMIT else f"{words[: WORDS_LIMIT - 1]}…"
