"""A cluster of plain dictionaries in which plans are carried out: what the API server and the kubelet would do.

Time only moves when a test moves it. Nothing here decides anything: it creates, deletes and stores what plans ask for.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from elasticjob.operator.model import ElasticJob
from elasticjob.operator.plan import (
    ApiProblem,
    CreateDisruptionBudget,
    CreatePod,
    CreateService,
    DeleteDisruptionBudget,
    DeleteJob,
    DeletePod,
    EventFact,
    NodeEvent,
    Observed,
    Plan,
    UpdateDisruptionBudget,
    plan,
)
from elasticjob.operator.pods import OperatorFacts
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.orders import NodeView, RunState, RunView

Body = dict[str, Any]

START = datetime(2030, 1, 1, 12, 0, 0, tzinfo=timezone.utc)
UID = "0b6a5d1e-0000-4000-8000-000000000001"
FACTS = OperatorFacts(
    image="registry.local/elasticjob:1", endpoint=ServerEndpoint(host="elasticjob-rendezvous.system.svc", port=8443)
)


class CrashError(Exception):
    """The operator dies here."""


def _stored(body: Mapping[str, Any]) -> Body:
    """A body as an API server keeps it."""
    found: Body = json.loads(json.dumps(dict(body)))
    return found


def template(**pod: Any) -> Body:
    return {"spec": {"containers": [{"name": "worker", "image": "registry.local/train:1"}], **pod}}


def job_body(*, name: str = "digits", status: Body | None = None, **spec: Any) -> Body:
    return {
        "apiVersion": "elasticjob.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": "train", "uid": UID, "generation": 1, "resourceVersion": "1"},
        "spec": {"replicas": 2, "template": template(), **spec},
        "status": status or {},
    }


def job(**spec: Any) -> ElasticJob:
    return ElasticJob.from_dict(job_body(**spec))


class World:
    """One job and what exists for it."""

    def __init__(self, **spec: Any) -> None:
        self.body = job_body(**spec)
        self.pods: dict[str, Body] = {}
        self.service = False
        self.disruption_budget: Body | None = None
        self.view: RunView | None = RunView(run_id=UID, epoch=1, round=0, state=RunState.WAITING)
        self.node_events: dict[str, NodeEvent] = {}
        self.problems: tuple[ApiProblem, ...] = ()
        self.now = START
        self.clock = 1000.0
        self.deleted = False
        self.events: list[EventFact] = []
        self.status_writes = 0
        self.created: list[str] = []
        self._uids = 0
        self._attempts: dict[int, int] = {}

    # What is observed.

    @property
    def status(self) -> Body:
        status: Body = self.body["status"]
        return status

    def observe(self) -> Observed:
        return Observed(
            job=ElasticJob.from_dict(self.body),
            facts=FACTS,
            now=self.now,
            clock=self.clock,
            pods=tuple(self.pods.values()),
            service=self.service,
            disruption_budget=self.disruption_budget,
            view=self.view,
            node_events=dict(self.node_events),
            problems=self.problems,
        )

    def plan(self) -> Plan:
        return plan(self.observe())

    # What the operator does.

    def step(self, *, crash_after: int | None = None) -> Plan:
        """Plan once and carry it out; die after so many writes if asked to."""
        made = self.plan()
        writes = 0

        def write() -> None:
            nonlocal writes
            if crash_after is not None and writes >= crash_after:
                raise CrashError
            writes += 1

        if made.charge_first and made.status is not None:
            write()
            self._store(made)
        for action in made.actions:
            write()
            self._act(action)
        if not made.charge_first and made.status is not None:
            write()
            self._store(made)
        elif made.status is None:
            self.events.extend(made.events)
        return made

    def settle(self, limit: int = 10) -> Plan:
        """Plan until nothing is left to do."""
        for _ in range(limit):
            made = self.step()
            if made.status is None and not made.actions:
                return made
        raise AssertionError(f"still not settled: {made}")

    def _store(self, made: Plan) -> None:
        assert made.status is not None
        self._write(made.status)
        self.events.extend(made.events)

    def _write(self, status: Mapping[str, Any]) -> None:
        self.body["status"] = _stored(status)
        self.status_writes += 1

    def _act(self, action: object) -> None:
        match action:
            case CreatePod(body=body):
                self._create(_stored(body))
            case DeletePod(name=name, uid=uid):
                self._delete(name, uid)
            case CreateService():
                self.service = True
            case CreateDisruptionBudget(body=body):
                self.disruption_budget = _stored(body)
                self.disruption_budget["metadata"]["uid"] = "budget-1"
            case UpdateDisruptionBudget(body=body):
                self.disruption_budget = _stored(body)
            case DeleteDisruptionBudget():
                self.disruption_budget = None
            case DeleteJob():
                self.deleted = True

    def _create(self, body: Body) -> None:
        name = body["metadata"]["name"]
        if name in self.pods:
            return
        self._uids += 1
        body["metadata"]["uid"] = f"pod-{self._uids}"
        body["status"] = {"phase": "Pending"}
        self.pods[name] = body
        self.created.append(name)
        index, attempt = (int(part) for part in name.split("-")[1:])
        self._attempts[index] = attempt + 1

    def _delete(self, name: str, uid: str) -> None:
        pod = self.pods.get(name)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        if pod["status"]["phase"] == "Running":
            pod["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:30Z"
        else:
            del self.pods[name]

    # What happens around it.

    def spec(self, **changes: Any) -> None:
        self.body["spec"].update(changes)
        self.body["metadata"]["generation"] += 1

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.clock += seconds

    def pod(self, index: int) -> Body:
        """The newest pod of a node."""
        attempt = max(attempt for attempt in range(self._attempts[index]) if f"digits-{index}-{attempt}" in self.pods)
        return self.pods[f"digits-{index}-{attempt}"]

    def run(self, *indexes: int) -> None:
        for index in indexes:
            self.pod(index)["status"] = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "worker", "restartCount": 0, "state": {"running": {}}}],
            }

    def exit(self, index: int, code: int = 0, *, why: str = "", message: str = "", **status: Any) -> None:
        ended: Body = {
            "exitCode": code,
            "reason": why or ("Completed" if code == 0 else "Error"),
            "message": message,
        }
        self.pod(index)["status"] = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [{"name": "worker", "restartCount": 0, "state": {"terminated": ended}}],
            **status,
        }

    def exit_in_place(self, index: int, code: int = 1, *, restarts: int = 0, message: str = "") -> None:
        """The worker ends once more and the kubelet, which restarts it in its pod, backs off first."""
        ended = {"exitCode": code, "reason": "Error", "message": message}
        container = {"name": "worker", "restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        self.pod(index)["status"]["containerStatuses"] = [{**container, "lastState": {"terminated": ended}}]

    def restart_in_place(self, index: int) -> None:
        """The kubelet starts the worker again."""
        (container,) = self.pod(index)["status"]["containerStatuses"]
        container["restartCount"] += 1
        container["state"] = {"running": {}}

    def mark_deleted(self, index: int) -> None:
        self.pod(index)["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:30Z"

    def vanish(self, index: int) -> None:
        del self.pods[self.pod(index)["metadata"]["name"]]

    def form(self, *indexes: int, **view: Any) -> None:
        """A new round of these nodes is complete."""
        before = self.view.round if self.view else 0
        members = tuple(self.node(index, rank) for rank, index in enumerate(indexes))
        fields: Body = {"round": before + 1, "state": RunState.FORMED, "participants": members, "waiting": ()}
        self.view = replace(self.view or RunView(run_id=UID, epoch=1, round=0, state=RunState.WAITING), **fields | view)

    def wait(self, *indexes: int, state: RunState = RunState.WAITING, **view: Any) -> None:
        """These nodes have joined the open round."""
        assert self.view is not None
        waiting = tuple(self.node(index, None) for index in indexes)
        self.view = replace(self.view, state=state, waiting=waiting, **view)

    def node(self, index: int, rank: int | None) -> NodeView:
        meta = self.pod(index)["metadata"]
        return NodeView(
            index=index, pod_uid=meta["uid"], pod=meta["name"], address=f"10.0.0.{index}", rank=rank, joined=True
        )

    # Short questions.

    def names(self) -> list[str]:
        return sorted(self.pods)

    def condition(self, type_: str) -> Body:
        found: Body = next(one for one in self.status["conditions"] if one["type"] == type_)
        return found

    def entry(self, index: int) -> Body:
        found: Body = next(one for one in self.status["nodes"] if one["index"] == index)
        return found

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]


def running(count: int = 2, **spec: Any) -> World:
    """A job whose first round trains on all its nodes."""
    world = World(replicas=count, **spec)
    world.settle()
    world.run(*range(count))
    world.form(*range(count))
    world.settle()
    return world
