"""Calls that must not take longer than they may, although what they call can hang."""

import threading
from collections.abc import Callable

from elasticjob.rendezvous.errors import RendezvousTimeoutError


def run_within(seconds: float, work: Callable[[], None], *, what: str) -> None:
    """Do the work, but wait for it no longer than `seconds`. What hangs is left behind in a daemon thread.

    Raises:
        RendezvousTimeoutError: It was not done in time. The message names `what`.
        Exception: Whatever the work raised.
    """
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # handed on to the caller
            raised.append(error)

    thread = threading.Thread(target=guarded, name=what, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending and gives out no threads
        work()
        return
    thread.join(seconds)
    if thread.is_alive():
        raise RendezvousTimeoutError(f"{what} was not done within {seconds:g} s: the backend does not answer.")
    if raised:
        raise raised[0]
