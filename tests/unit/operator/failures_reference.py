"""Writes docs/failures.md from what the operator does: `python -m tests.unit.operator.failures_reference`.

Each row is one way in which the second of two pods ends, played against the plan; what the row says is read from the
status that follows.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticjob.rendezvous.orders import RunState
from tests.unit.operator.world import World, running

PAGE = Path(__file__).resolve().parents[3] / "docs" / "failures.md"

_HEAD = """# How pods end, and what follows

Made by `python -m tests.unit.operator.failures_reference`, which plays each row against the operator's decisions. For a
node whose pod has ended, `status.nodes[].lastFailure` has the reason, the exit code and the last words of the worker.
*Failures* count towards `restartPolicy.maxRestarts`, *disruptions* never end a job. Pods that end in the same round are
one incident, however many they are. A planned change is one that was announced in time: the group goes on without the
node while the pod still has its grace period.

| what happened | `lastFailure.reason` | exit code | counted as | change of the group | what follows |
| --- | --- | --- | --- | --- | --- |
"""

_TAIL = """
The worker container alone decides: sidecars may end, fail or never end. A pod in phase `Unknown` is waited for.
Whatever a pod still does after its end was counted changes nothing.

## What no pod tells

The operator has no right to read Nodes; it judges a machine by what Kubernetes writes into the pods there.

- A machine that stops reporting is seen once the node controller has marked its pods (40 to 50 s by default), and it
  is lost once its agent is silent as well. Pods there that were not ready before are not marked: they are replaced
  when Kubernetes evicts them, by default after 300 s.
- A cordon or a taint without eviction is not seen: pods there stay until they are evicted.
- A machine that reports and is broken all the same shows by failures, and replacements then prefer others.
"""


@dataclass(frozen=True)
class Case:
    """One way to end.

    Args:
        play: Lets it happen to node 1 of a world.
        restart_policy: What the job says about failures.
    """

    what: str
    play: Callable[[World], None]
    restart_policy: dict[str, Any] = field(default_factory=dict)


def exits(code: int, **more: Any) -> Callable[[World], None]:
    """The worker container ends."""
    return lambda world: world.exit(1, code, **more)


def exits_in_place(code: int) -> Callable[[World], None]:
    """The worker container ends, and the kubelet is about to restart it."""
    return lambda world: world.exit_in_place(1, code)


def fails(**status: Any) -> Callable[[World], None]:
    """The pod is put into phase Failed, and no container tells how it ended."""

    def play(world: World) -> None:
        world.pod(1)["status"] = {"phase": "Failed", **status}

    return play


def is_taken(reason: str = "", *, exit_code: int | None = None) -> Callable[[World], None]:
    """The pod is deleted while it runs, with an announcement if there is a reason."""

    def play(world: World) -> None:
        if exit_code is not None:
            world.exit(1, exit_code)
        if reason:
            target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
            world.pod(1)["status"].setdefault("conditions", []).append(target)
        world.mark_deleted(1)

    return play


def loses_its_machine(world: World) -> None:
    stamp = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    world.pod(1)["status"]["conditions"] = [
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "False", "lastTransitionTime": stamp},
    ]
    world.wait(0, state=RunState.LAST_CALL)
    world.later(15)


def is_not_wanted(world: World) -> None:
    world.spec(replicas=1)


def sidecar_fails(world: World) -> None:
    ended = {"name": "proxy", "state": {"terminated": {"exitCode": 1}}}
    world.pod(1)["status"]["containerStatuses"].append(ended)


def is_unknown(world: World) -> None:
    world.pod(1)["status"]["phase"] = "Unknown"


def rule(action: str, **match: Any) -> dict[str, Any]:
    return {"rules": [{"action": action, **match}]}


IN_42 = {"onExitCodes": {"operator": "In", "values": [42]}}
DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
INIT = {"name": "fetch", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}
SHUTDOWN = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]

CASES = (
    Case("the worker succeeds", exits(0)),
    Case("the worker fails", exits(1)),
    Case("the worker is killed by a signal that nobody announced", exits(143)),
    Case("the worker fails, with `restartPolicy: OnFailure`", exits_in_place(1)),
    Case("out of memory", exits(137, why="OOMKilled")),
    Case("an init container fails", fails(initContainerStatuses=[INIT])),
    Case("`activeDeadlineSeconds` of the pod itself", fails(reason="DeadlineExceeded")),
    Case("evicted by the kubelet", fails(reason="Evicted")),
    Case("refused by the kubelet, e.g. without room", fails(reason="OutOfcpu")),
    Case("the machine is shut down", exits(143, reason="Terminated", conditions=SHUTDOWN)),
    Case("`kubectl drain`, the eviction API", is_taken("EvictionByEvictionAPI")),
    Case("pre-empted", is_taken("PreemptionByScheduler")),
    Case("evicted by a taint", is_taken("DeletionByTaintManager")),
    Case("`kubectl delete pod`", is_taken()),
    Case("deleted, and the worker has obeyed with exit code 0 when that is seen", is_taken(exit_code=0)),
    Case("gone without a trace, e.g. deleted by force", lambda world: world.vanish(1)),
    Case("machine and agent are silent", loses_its_machine),
    Case("the job is made smaller", is_not_wanted),
    Case("phase `Unknown`", is_unknown),
    Case("a sidecar fails", sidecar_fails),
    Case("the worker fails, the budget is spent", exits(1), {"maxRestarts": 0}),
    Case("a rule: `Ignore` exit code 42", exits(42), rule("Ignore", **IN_42)),
    Case("a rule: `FailJob` on exit code 42", exits(42), rule("FailJob", **IN_42)),
    Case("a rule: `Ignore` exit code 42, with `OnFailure`", exits_in_place(42), rule("Ignore", **IN_42)),
    Case("a rule: `FailJob` on exit code 42, with `OnFailure`", exits_in_place(42), rule("FailJob", **IN_42)),
    Case("a rule: `Count` disruptions", is_taken("PreemptionByScheduler"), rule("Count", **DISRUPTED)),
)


def row(case: Case) -> str:
    """The row of one case, read from the status that follows."""
    world = running(2, minReplicas=1, restartPolicy=case.restart_policy)
    before = list(world.created)
    case.play(world)
    world.settle()
    failure = next((one.get("lastFailure") for one in world.status["nodes"] if one["index"] == 1), None) or {}
    cells = (
        case.what,
        f"`{failure['reason']}`" if failure else "",
        str(failure.get("exitCode", "")),
        _counted(world),
        _change(world),
        _follows(world, before),
    )
    return f"| {' | '.join(cells)} |"


def _counted(world: World) -> str:
    counts = world.status["restarts"]
    return "failure" if counts["failures"] else "disruption" if counts["disruptions"] else "nothing"


def _change(world: World) -> str:
    """What the history says once the group has gone on without the node."""
    still_in = world.status["phase"] == "Running" and not any(world.status["restarts"].values())
    if still_in or world.status["phase"] in ("Succeeded", "Failed"):
        return ""
    world.form(0)
    world.settle()
    return "planned" if world.status["history"][-1]["planned"] else "unplanned"


def _follows(world: World, before: list[str]) -> str:
    if world.condition("Failed")["status"] == "True":
        return f"the job fails: `{world.condition('Failed')['reason']}`"
    if len(world.created) > len(before):
        return "a new pod"
    if "endsInPlace" in world.status["ledger"]:
        return "a restart in its pod"
    return "the others go on" if world.entry(0)["state"] == "RUNNING" else ""


def current() -> str:
    """The page."""
    return _HEAD + "\n".join(map(row, CASES)) + "\n" + _TAIL


if __name__ == "__main__":
    PAGE.write_text(current())
    sys.stdout.write(f"{PAGE} written\n")
