"""Tells the three things apart that an HTTP answer can be: what was asked for, a refusal, or nonsense.

Nonsense (an error page of a proxy, another server behind the address, cut JSON) is no word of the operator and is
treated like no answer at all.
"""

from collections.abc import Callable
from typing import TypeVar

from elasticjob.rendezvous.http_client import Answer, HttpCallError
from elasticjob.rendezvous.protocol import ProtocolError, parse

MAX_RETRY_AFTER_SECONDS = 30.0
"""Longest pause that the server can ask for."""

_OK = 200
T = TypeVar("T")


class RefusedError(Exception):
    """The operator refused the call. `retry_after` is the shortest pause in seconds that it asked for, 0 for none."""

    def __init__(self, refusal: ProtocolError, *, retry_after: float) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        self.retry_after = retry_after


def read_answer(answer: Answer, reader: Callable[[object], T]) -> T:
    """Read the body of an answer.

    Args:
        answer: What came back.
        reader: Reads the JSON of an answer with status 200.

    Raises:
        RefusedError: The operator refused the call.
        HttpCallError: The answer is nonsense.
    """
    try:
        if answer.status == _OK:
            return parse(answer.content, reader)
        refusal = parse(answer.content, ProtocolError.from_json)
    except ProtocolError as error:
        raise HttpCallError(f"status {answer.status} with a body that is none of ours: {error}") from error
    raise RefusedError(refusal, retry_after=min(answer.retry_after or 0.0, MAX_RETRY_AFTER_SECONDS))
