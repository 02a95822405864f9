"""What commands print about a job, without what differs between two runs: times, ages, identities."""

import re
import textwrap
from collections.abc import Iterator

_WIDTH = 100
_UID = "3f0c5a52-7d1e-4b0e-9c57-0a4f6f1d2e90"
_SUBSTITUTES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "2026-01-01T12:00:00Z"),
    (re.compile(r"(?<![T\d])\d\d:\d\d:\d\dZ"), "12:00:00Z"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), _UID),
    (re.compile(r"^( *Resource Version: +)\d+$"), r"\g<1>1000"),
    (re.compile(r"^( *Seconds: +)[\d.e-]+$"), r"\g<1>0.5"),
    (re.compile(r"^( *Epoch: +)\d+$"), r"\g<1>1"),
    (re.compile(r"^(Namespace: +)\S+$"), r"\g<1>train"),
    (re.compile(r"\bfor (\d+[smhd])+ \(since"), "for 1m (since"),
)

_DAY = "2026-01-01T"
_PARAGRAPH = "$ kubectl elasticjob why "
_BY_CHANCE = re.compile(r"Normal +(NodeJoined|NodesJoined|StaleCallRefused|StaleCallsRefused) |^ +Quick Ends: ")


def plain(line: str) -> str:
    """A line with all that differs replaced by examples."""
    for pattern, substitute in _SUBSTITUTES:
        line = pattern.sub(substitute, line)
    return line.rstrip()


def get_table(printed: str) -> list[str]:
    """What `kubectl get` printed."""
    head, *lines = printed.rstrip().splitlines()
    starts = [match.start() for match in re.finditer(r"\S+( \S+)*", head)]
    rows = [_cells(line, starts) for line in (head, *lines)]
    age = rows[0].index("AGE")
    return _aligned([rows[0], *([*row[:age], "1m", *map(plain, row[age + 1 :])] for row in rows[1:])])


def paragraph(printed: str) -> list[str]:
    """A wrapped paragraph."""
    return textwrap.wrap(plain(" ".join(printed.split())), _WIDTH, break_long_words=False, break_on_hyphens=False)


def describe(printed: str) -> list[str]:
    """What `kubectl describe` printed, from the status on."""
    lines = printed.rstrip().splitlines()
    body = lines[lines.index("Status:") :]
    events = next(place for place, line in enumerate(body) if line.startswith("Events:"))
    return [*map(plain, body[:events]), *_events(body[events:])]


def canonical(lines: list[str]) -> list[str]:
    """Lines to compare.

    Of Events that is a set: those at about the same time have no order. Joins within two seconds are one Event, and
    whether an agent calls once more before it learns that its pod was given up is a matter of moments; and whether a
    pod ended soon after it was made depends on how busy the machine is. A stamp in a sentence has a date if that is not
    today's, so close to midnight sentences have, and are wrapped otherwise.
    """
    if lines and lines[0].startswith(_PARAGRAPH):
        return [lines[0], " ".join(lines[1:]).replace(_DAY, "")]
    place = lines.index("Events:") if "Events:" in lines else len(lines)
    events = (re.sub(r"\s{2,}|--+", "  ", line).strip() for line in lines[place:])
    shown = [*lines[:place], *sorted(line for line in events if line)]
    return [line.replace(_DAY, "") for line in shown if not _BY_CHANCE.match(line)]


def _events(lines: list[str]) -> list[str]:
    """The table of Events, one of each; kubectl puts two spaces between columns at least."""
    rows = [re.split(r"\s{2,}", line.strip(), maxsplit=4) for line in lines[3:]]
    if not rows:
        return [line.rstrip() for line in lines]
    shown = [["Type", "Reason", "Age", "From", "Message"], ["----", "------", "----", "----", "-------"]]
    for type_, reason, _, source, message in rows:
        shown.append([type_, reason, "1m", source, plain(message)])
    return ["Events:", *(f"  {line}" for line in _aligned(shown))]


def _cells(line: str, starts: list[int]) -> list[str]:
    ends = [*starts[1:], None]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def blocks(document: str) -> Iterator[re.Match[str]]:
    """The code blocks of a document that a test has made: groups `name` and `body`."""
    return re.finditer(r"<!-- made by a test: (?P<name>[\w -]+) -->\n+```text\n(?P<body>.*?)```\n", document, re.DOTALL)
