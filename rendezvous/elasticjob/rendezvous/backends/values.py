"""What every backend demands of the state that it stores, and how it reads base64.

A backend never looks into the state. It only knows that no encoder yields an empty one, so that an empty stored value
is damage and not "no state yet"; and that text which is no strict base64 is damage as well (the lenient decoder turns
`!!!!` into nothing without complaint).
"""

import base64
import binascii

from elasticjob.rendezvous.errors import RendezvousStateError


def check_new_state(state: bytes, *, where: str, limit: int | None = None) -> None:
    """Refuse a state that cannot be stored.

    Args:
        where: The object that would hold it, for the message.
        limit: Its greatest size in bytes.

    Raises:
        RendezvousStateError: The state is empty or too large.
    """
    if not state:
        raise RendezvousStateError(f"refused to write an empty state to {where}")
    if limit is not None and len(state) > limit:
        raise RendezvousStateError(f"the new state has {len(state)} bytes, but {where} can hold at most {limit}")


def check_stored_state(state: bytes, *, where: str) -> bytes:
    """Return a state that was read, if it can be one.

    Raises:
        RendezvousStateError: It is empty.
    """
    if not state:
        raise RendezvousStateError(f"{where} is corrupt: it is empty")
    return state


def encode_base64(data: bytes) -> str:
    """Standard base64."""
    return base64.b64encode(data).decode()


def decode_base64(text: object, *, where: str) -> bytes:
    """Strict decoding of standard base64.

    Raises:
        RendezvousStateError: The text is anything else.
    """
    if not isinstance(text, str):
        raise RendezvousStateError(f"{where} is corrupt: it holds {type(text).__name__} instead of text")
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RendezvousStateError(f"{where} is corrupt: {error}") from error
