"""How much room a text takes in a stored object, and how a long one is made to fit.

Objects are stored as JSON, where the API server writes some characters as six: control characters, and `<`, `>` and
`&`, of which traces are full. So what is limited is that form, in bytes, whatever anybody wrote into it.
"""

_ESCAPED_BY_TWO = frozenset('"\\\n\r\t')
_ESCAPED_BY_SIX = frozenset("<>&\u2028\u2029")
_ELLIPSIS = "…"


def stored_size(text: str) -> int:
    """Bytes that a text takes in the JSON of the API server, without the quotes."""
    return sum(map(_size, text))


def shortened(text: str, limit: int) -> str:
    """The longest last part of a text that takes at most `limit` bytes, with an ellipsis if it was cut.

    The end is kept, since that is where a trace says why.
    """
    if stored_size(text[-limit - 1 :]) <= limit:
        return text
    room, start = limit - stored_size(_ELLIPSIS), len(text)
    while start and (size := _size(text[start - 1])) <= room:
        room -= size
        start -= 1
    return _ELLIPSIS + text[start:]


def _size(character: str) -> int:
    if character in _ESCAPED_BY_TWO:
        return 2
    if character < " " or character in _ESCAPED_BY_SIX:
        return 6
    return len(character.encode("utf-8", "surrogatepass"))
