"""Waiting for an event with a limit."""

import asyncio


async def happens(event: asyncio.Event, *, within: float) -> bool:
    """Wait for the event. False if it is not set within so many seconds.

    Also for tasks that have been cancelled and put things in order: in these, `asyncio.timeout` of Python 3.11.2, which
    Debian 12 has, raises CancelledError when the time is over.
    """
    waiting = asyncio.ensure_future(event.wait())
    try:
        done, _ = await asyncio.wait({waiting}, timeout=within)
    finally:
        waiting.cancel()
    return bool(done)
