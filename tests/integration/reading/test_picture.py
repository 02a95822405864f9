"""The picture of `kubectl elasticjob status` in the README is a drawing of what it showed of a real job.

With ELASTICJOB_WRITE_DOCS=1 it is drawn anew. Otherwise the same is brought about and what is shown must say the same;
times and the widths of bars are those of the run that was drawn.
"""

import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.integration.reading import terminal
from tests.integration.reading.site import JOB, Site, eventually

pytestmark = [pytest.mark.timeout(300, func_only=True), pytest.mark.xdist_group("reading")]

COMMAND = f"kubectl elasticjob status {JOB}"
NO_ROOM = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
BARS = re.compile(r"[▁▂▃▄▅▆▇█· ]+|(\d +)*\d")
BY_CHANCE = (
    (re.compile(r"\d{4}-\d\d-\d\dT"), ""),
    (re.compile(r"\d\d:\d\d:\d\dZ"), "T"),
    (re.compile(r"\b\d+(\.\d+)?[smhd](\d+[smhd])?\b"), "D"),
    (re.compile(r"epoch \d+"), "epoch N"),
    (re.compile(r"\s+"), " "),
)


def said(lines: list[str]) -> list[str]:
    """What lines say, without what differs between two runs."""
    plain = [terminal.text(line).strip() for line in lines]
    kept = [line for line in plain if line and not BARS.fullmatch(line)]
    for pattern, substitute in BY_CHANCE:
        kept = [pattern.sub(substitute, line) for line in kept]
    # A long message is cut or wrapped where the times before it make it so.
    return [line.partition(" digits-2 is Pending")[0].partition(" is Pending")[0] for line in kept]


def drawn(path: Path) -> list[str]:
    """The lines of a drawing."""
    rows = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return [" ".join(span.text or "" for span in row) for row in rows]


def eventful(site: Site) -> None:
    """Rank 0 was killed and replaced, then the job was made smaller, and larger again while there is no room."""
    site.create(replicas=3, minReplicas=2)
    site.run("digits-0-0", "digits-1-0", "digits-2-0")
    site.join("digits-0-0", "digits-1-0", "digits-2-0")
    site.wait(round=1, state="Formed", participants=3)
    site.exit("digits-0-0", 137, "OOMKilled")
    site.run("digits-0-1")
    site.join("digits-0-1")
    site.wait(round=2, state="Formed", participants=3)
    site.kubectl("scale", "elasticjob", JOB, "--replicas=2")
    site.wait(round=3, state="Formed", participants=2)
    site.finish_deletion("digits-2-0")
    site.kubectl("scale", "elasticjob", JOB, "--replicas=3")
    site.cannot_schedule("digits-2-1", NO_ROOM)


def test_the_picture_is_what_a_terminal_shows(site: Site, document: Path) -> None:
    eventful(site)
    picture = document.with_name("status.svg")
    words = [sys.executable, "-m", "elasticjob.operator.plugin.main", "status", JOB]
    where = ["-n", site.namespace, "--kubeconfig", str(site.cluster.kubeconfig)]
    environ = {**os.environ, "PATH": f"{site.cluster.kubectl.program.parent}{os.pathsep}{os.environ['PATH']}"}
    lines: list[str] = []

    def same() -> bool:
        lines[:] = terminal.shown([*words, *where], environ=environ, columns=110, lines=40)
        return said([f"$ {COMMAND}", *lines]) == said(drawn(picture))

    def complete() -> bool:
        lines[:] = terminal.shown([*words, *where], environ=environ, columns=110, lines=40)
        return NO_ROOM in " ".join(" ".join(lines).split())

    if os.environ.get("ELASTICJOB_WRITE_DOCS"):
        eventually(complete, what="the picture tells what there is no room for")
        picture.write_text(terminal.drawing(COMMAND, lines))
    try:
        eventually(same, what="the picture", seconds=30)
    except AssertionError:
        assert said([f"$ {COMMAND}", *lines]) == said(drawn(picture))
