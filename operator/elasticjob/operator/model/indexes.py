"""Short text forms for sets of node indexes and for a number an index, as batch/v1 Jobs write `completedIndexes`.

A set is `0-3,7`. A mapping groups the indexes by their number: `0-3,7:1 5:2` says 1 for 0 to 3 and 7, and 2 for 5;
an index with 0 is left out. So ten thousand nodes that all fare alike take a few bytes of the status.
"""

from collections.abc import Iterable, Mapping

from elasticjob.operator.constants import MAX_REPLICAS


def format_indexes(indexes: Iterable[int]) -> str:
    """`{0, 1, 2, 7}` as `0-2,7`."""
    runs: list[tuple[int, int]] = []
    for index in sorted(set(indexes)):
        if runs and runs[-1][1] == index - 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_indexes(text: str) -> frozenset[int]:
    """`0-2,7` as `{0, 1, 2, 7}`.

    Raises:
        ValueError: The text has another form, the ranges do not ascend, or an index is out of range.
    """
    result: set[int] = set()
    least = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not least <= low <= high <= 2 * MAX_REPLICAS:
            raise ValueError(f"index range {part[:40]!r} is not within {least}-{2 * MAX_REPLICAS}")
        result.update(range(low, high + 1))
        least = high + 1
    return frozenset(result)


def format_numbers(numbers: Mapping[int, int]) -> str:
    """`{0: 1, 1: 1, 5: 2}` as `0-1:1 5:2`."""
    groups: dict[int, list[int]] = {}
    for index, number in numbers.items():
        if number:
            groups.setdefault(number, []).append(index)
    return " ".join(f"{format_indexes(groups[number])}:{number}" for number in sorted(groups))


def parse_numbers(text: str) -> dict[int, int]:
    """`0-1:1 5:2` as `{0: 1, 1: 1, 5: 2}`.

    Raises:
        ValueError: The text has another form, or an index has two numbers.
    """
    result: dict[int, int] = {}
    for group in text.split():
        indexes, _, number = group.partition(":")
        parsed = parse_indexes(indexes)
        if not result.keys().isdisjoint(parsed):
            raise ValueError(f"an index of {group[:40]!r} has another number already")
        result.update(dict.fromkeys(parsed, int(number)))
    return result
