"""Where events go: a registry of logging handlers by destination.

Three destinations are built in: `console` writes to standard error; `dynamic_rendezvous` and `null` drop what they get,
so that events cost nothing until somebody wants them. `register_logging_handler` adds destinations and replaces the
built-in ones, at any time.

The built-in handlers also offer `info(event)`, because the documentation of torch elastic shows
`get_logging_handler(destination="console").info(event)`.
"""

import logging
import sys
from typing import TYPE_CHECKING, TextIO

__all__ = ["get_logging_handler", "register_logging_handler"]


# Python 3.10 cannot subscript it when the program runs.
if TYPE_CHECKING:
    _TextHandler = logging.StreamHandler[TextIO]
else:
    _TextHandler = logging.StreamHandler


class _DirectHandler(logging.Handler):
    """A handler that an event can be given to without a logger."""

    def info(self, event: object) -> None:
        self.handle(logging.makeLogRecord({"msg": str(event), "levelno": logging.INFO, "levelname": "INFO"}))


class _NullEventHandler(logging.NullHandler, _DirectHandler):
    """Drops events."""


class _ConsoleEventHandler(_TextHandler, _DirectHandler):
    """Writes events to what is standard error at that time, unless a stream has been set."""

    def __init__(self) -> None:
        self._stream: TextIO | None = None
        super().__init__()
        self._stream = None

    @property
    def stream(self) -> TextIO:
        return self._stream if self._stream is not None else sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        self._stream = stream


SILENT = _NullEventHandler()
"""What gets the events of the rendezvous until somebody wants them."""

_BUILT_IN: dict[str, logging.Handler] = {
    "console": _ConsoleEventHandler(),
    "dynamic_rendezvous": SILENT,
    "null": _NullEventHandler(),
}

# The name is that of torch elastic, where changing this mapping is the only way to add a handler.
_log_handlers: dict[str, logging.Handler] = dict(_BUILT_IN)


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """Return the handler of a destination.

    Raises:
        KeyError: There is no such destination.
    """
    try:
        return _log_handlers[destination]
    except KeyError:
        known = ", ".join(sorted(_log_handlers))
        raise KeyError(f"No destination for events is called {destination!r}; known are {known}.") from None


def register_logging_handler(destination: str, handler: logging.Handler | None) -> logging.Handler | None:
    """Send the events of a destination to `handler` from now on, and return the handler that got them before.

    To take a handler back, register what this returned. None stands for the built-in handler of the destination; a
    destination without one ceases to exist. The caller stays the owner of the handlers and closes them.

    Raises:
        TypeError: `handler` is not a logging handler.
        ValueError: The destination has no name.
    """
    if not destination:
        raise ValueError("The destination must be a non-empty string.")
    if handler is not None and not isinstance(handler, logging.Handler):
        raise TypeError(f"The handler must be a logging.Handler, not {type(handler).__name__}.")
    previous = _log_handlers.get(destination)
    chosen = handler if handler is not None else _BUILT_IN.get(destination)
    if chosen is not None:
        _log_handlers[destination] = chosen
    else:
        _log_handlers.pop(destination, None)
    return previous
