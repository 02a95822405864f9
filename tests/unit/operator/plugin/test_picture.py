"""The picture of a job, compared as text."""

import re
from typing import Any

import pytest

from elasticjob.operator.plugin.picture import picture
from elasticjob.operator.plugin.text import Style
from tests.unit.operator.plugin.jobs import NOW, job, node, running, waiting

RUNNING = """\
digits  Running  round 3  2/2 nodes (min 1, max 3)  for 10m
failures 0 of 10  disruptions 1  resizes 0  backend kubernetes, epoch 4

STATE    NAME      RANK  POD         NODE      RESTARTS  MESSAGE
RUNNING  digits-0  1     digits-0-1  worker-0  1         before: Killed (exit code 137)
RUNNING  digits-1  0     digits-1-0  worker-1  0

███████████████████████████████████████████████▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄█████████████████
1                                              2               3
14:00:00Z                                                              14:10:00Z

ROUND  FORMED     TRAINED  NODES  FORMED IN  CAUSE
1      14:00:00Z  5m58s    0→2    1.5s       the run began
2      14:06:00Z  1m59s    2→1    1.5s       ! digits-0: Killed (pod)
3      14:08:00Z  2m       1→2    0.4s       digits-0 joined"""


WAITING = """\
digits  Forming  round 0  1/2 nodes (min 1, max 3)  for 10m
failures 0 of 10  disruptions 0  resizes 0  backend kubernetes, epoch 4
1 of 2 joined (min 1). digits-1 is Pending: no room.

STATE  NAME      RANK  POD         NODE      RESTARTS  MESSAGE
INIT   digits-0        digits-0-0  worker-0  0
INIT   digits-1        digits-1-0            0         Unschedulable: is Pending: no room"""


UNSEEN = """\
digits  Pending  round 0  0/2 nodes (min 1, max 3)
failures 0 of 10  disruptions 0  resizes 0
the operator has not looked at it in its present form yet"""


def drawn(body: dict[str, Any], style: Style | None = None) -> str:
    return "\n".join(picture(body, now=NOW, style=style or Style(width=100)))


def test_a_running_job_is_shown_with_its_nodes_and_its_rounds_along_time() -> None:
    assert drawn(running()) == RUNNING


def test_a_waiting_job_says_why_under_its_head() -> None:
    message = "1 of 2 joined (min 1). digits-1 is Pending: no room."
    assert drawn(waiting("Unschedulable", message)) == WAITING


def test_a_job_that_nobody_has_looked_at_says_so() -> None:
    assert drawn(job()) == UNSEEN


def test_a_terminal_without_unicode_gets_ascii() -> None:
    text = drawn(running(), Style(unicode=False, width=100))
    assert text.isascii()
    assert "#####" in text
    assert "2->1" in text


def test_colours_are_used_only_where_they_are_wanted() -> None:
    coloured = drawn(running(), Style(colour=True, width=100))
    assert "\x1b[32mRUNNING" in coloured
    assert re.sub(r"\x1b\[[0-9]+m", "", coloured) == drawn(running())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = node(0, "FAILED", reason="Error", exitCode=1, message="x" * 500)
    message = "y" * 500
    lines = picture(waiting("Reforming", message, nodes=[long]), now=NOW, style=Style(width=width))
    assert max(len(line) for line in lines) <= width


def test_what_a_container_wrote_cannot_control_the_terminal() -> None:
    evil = node(0, "FAILED", reason="Error", message="\x1b[2J\x07gone\r\nnext")
    assert "Error:  [2J gone next" not in drawn(running(nodes=[evil]))
    assert "Error: [2J gone next" in drawn(running(nodes=[evil]))


def test_of_more_nodes_than_there_are_lines_the_troubled_ones_are_shown_and_the_others_counted() -> None:
    nodes = [node(index, "RUNNING", rank=index) for index in range(100)]
    nodes[70] = node(70, "FAILED", reason="Error")
    nodes[50] = node(50, "INIT")
    lines = picture(running(nodes=nodes), now=NOW, style=Style(width=100, height=20))
    assert len(lines) <= 20
    text = "\n".join(lines)
    assert "digits-70" in text
    assert "digits-50" in text
    assert re.search(r"\(9[0-9] more nodes\)", text)


def test_nodes_that_the_status_leaves_out_are_counted() -> None:
    assert "(800 more nodes)" in drawn(running(nodeCounts={"omitted": 800}))


def test_a_damaged_status_is_shown_as_far_as_it_can_be_understood() -> None:
    text = drawn(running(nodes="none", history=[{"time": "yesterday"}, {"time": 5}, 7], restarts=[], conditions=[{}]))
    assert text.startswith("digits  Running  round 3  2/2 nodes")


def test_a_narrow_terminal_keeps_what_matters_most() -> None:
    lines = picture(running(), now=NOW, style=Style(width=60))
    assert "STATE    NAME      RANK  MESSAGE" in lines
    assert "RUNNING  digits-0  1     before: Killed (exit code 137)" in lines
    assert "2      14:06:00Z  1m59s    2→1    ! digits-0: Killed (pod)" in lines


def test_stamps_of_today_are_shown_without_their_date() -> None:
    nodes = [node(0, "INIT", reason="Unschedulable", message="is Pending since 2030-01-01T14:03:02Z: no room")]
    assert "Unschedulable: is Pending since 14:03:02Z: no room" in "\n".join(
        picture(running(nodes=nodes), now=NOW, style=Style())
    )
    nodes = [node(0, "INIT", reason="Unschedulable", message="is Pending since 2029-12-31T14:03:02Z: no room")]
    assert "since 2029-12-31T14:03:02Z" in "\n".join(picture(running(nodes=nodes), now=NOW, style=Style()))
