"""One job in one picture: what it does, its nodes, its rounds."""

import textwrap
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.model import NodeStatus
from elasticjob.operator.model.fields import mapping, number, text
from elasticjob.operator.plugin.job import Job
from elasticjob.operator.plugin.text import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Cell,
    Style,
    duration,
    familiar,
    flow,
    plain,
    table,
)
from elasticjob.operator.plugin.text import moment as parse_moment
from elasticjob.operator.plugin.timeline import timeline
from elasticjob.rendezvous.wording import counted

_STATE_COLOURS = {
    constants.NODE_FAILED: RED,
    constants.NODE_INIT: YELLOW,
    constants.NODE_RUNNING: GREEN,
    constants.NODE_SUCCEEDED: DIM,
}
"""In the order in which nodes are kept when there is not room for all."""
_PHASE_COLOURS = {
    constants.PHASE_RUNNING: GREEN,
    constants.PHASE_SUCCEEDED: GREEN,
    constants.PHASE_FAILED: RED,
}
_FEWEST_NODES = 3
_REASON_LINES = 4


def picture(body: Mapping[str, Any], *, now: datetime, style: Style) -> list[str]:
    """The lines of the picture."""
    job = Job(body)
    above = [*_head(job, now, style), *_reason(job, now, style)]
    end = job.trained_until(now)
    rounds = timeline(job.status.history, end=end, now=end if job.is_over else now, style=style)
    room = None if style.height is None else style.height - len(above) - len(rounds) - 4
    parts = (above, _nodes(job, room, now, style), rounds)
    lines: list[str] = []
    for part in parts:
        lines += ["", *part] if lines and part else part
    return lines


def _head(job: Job, now: datetime, style: Style) -> list[str]:
    phase = job.status.phase or constants.PHASE_PENDING
    size = text(job.raw_status, "size") or f"0/{job.replicas}"
    words = (
        Cell(job.name, BOLD),
        Cell(phase, _PHASE_COLOURS.get(phase, YELLOW)),
        Cell(f"round {job.status.rendezvous.round}"),
        Cell(f"{size} nodes ({_limits(job)})"),
        Cell(_age(job, now)),
    )
    return [*flow([cell for cell in words if cell.text], style), *flow(_counts(job), style)]


def _limits(job: Job) -> str:
    most = number(job.spec, "maxReplicas")
    return f"min {job.least}, max {most}" if most else f"min {job.least}"


def _age(job: Job, now: datetime) -> str:
    started, completed = parse_moment(job.status.start_time), parse_moment(job.status.completion_time)
    if started is None:
        return ""
    spent = duration(((completed or now) - started).total_seconds())
    return f"took {spent}" if completed else f"for {spent}"


def _counts(job: Job) -> list[Cell]:
    restarts = mapping(job.raw_status, "restarts")
    limit = mapping(job.spec, "restartPolicy").get("maxRestarts")
    budget = f" of {limit}" if isinstance(limit, int) else ""
    rendezvous = job.status.rendezvous
    kept = f"backend {rendezvous.backend}, epoch {rendezvous.epoch}" if rendezvous.backend else ""
    words = (
        f"failures {number(restarts, 'failures')}{budget}",
        f"disruptions {number(restarts, 'disruptions')}",
        f"resizes {number(restarts, 'resizes')}",
        kept,
    )
    return [Cell(one, DIM) for one in words if one]


def _reason(job: Job, now: datetime, style: Style) -> list[str]:
    """Why it is not all well, if it is not."""
    if not job.is_seen:
        return [style.paint("the operator has not looked at it in its present form yet", YELLOW)]
    ready = job.status.condition(constants.READY)
    settled = job.status.condition(constants.RECONCILING)
    if ready is None or not ready.message or (ready.status == "True" and (not settled or settled.status == "False")):
        return []
    words = familiar(ready.message, now)
    return (
        textwrap.wrap(words, style.width, max_lines=_REASON_LINES, placeholder=style.ellipsis)
        if style.width
        else [words]
    )


def _nodes(job: Job, room: int | None, now: datetime, style: Style) -> list[str]:
    nodes = job.status.nodes
    shown = nodes if room is None else _kept(nodes, max(_FEWEST_NODES, room - 2))
    if not shown:
        return []
    head = ("STATE", "NAME", "RANK", "POD", "NODE", "RESTARTS", "MESSAGE")
    lines = table(head, [_row(node, now) for node in shown], style, optional=("POD", "RESTARTS", "NODE", "RANK"))
    left_out = len(nodes) - len(shown) + number(mapping(job.raw_status, "nodeCounts"), "omitted")
    return [*lines, f"({counted(left_out, 'more node')})"] if left_out else lines


def _kept(nodes: tuple[NodeStatus, ...], room: int) -> list[NodeStatus]:
    """Those that a person would look for, by index."""
    order = list(_STATE_COLOURS)
    worth = sorted(nodes, key=lambda node: (order.index(node.state) if node.state in order else 0, node.index))
    return sorted(worth[:room], key=lambda node: node.index)


def _row(node: NodeStatus, now: datetime) -> list[Cell]:
    return [
        Cell(plain(node.state), _STATE_COLOURS.get(node.state, "")),
        Cell(plain(node.name)),
        Cell("" if node.rank is None else str(node.rank)),
        Cell(plain(node.pod)),
        Cell(plain(node.node)),
        Cell(str(node.restarts)),
        Cell(_message(node, now)),
    ]


def _message(node: NodeStatus, now: datetime) -> str:
    """Why it is in its state, else how its last attempt ended."""
    code = f" (exit code {node.exit_code})" if node.exit_code is not None else ""
    if node.reason or node.message:
        return familiar(f"{node.reason}{code}: {node.message}" if node.message else f"{node.reason}{code}", now)
    failure = node.last_failure
    if failure is None:
        return ""
    code = f" (exit code {failure.exit_code})" if failure.exit_code is not None else ""
    return plain(f"before: {failure.reason}{code}")
