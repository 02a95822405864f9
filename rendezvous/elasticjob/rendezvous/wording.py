"""Numbers in sentences for people."""


def counted(number: int, noun: str) -> str:
    """How many of something: `1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
