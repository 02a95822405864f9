"""The operator's log: one JSON object a line, or text for people.

Whatever is passed as `extra=` becomes a field of its own, so that a log store can be searched by job or epoch. Secrets
are not logged: no part of the operator passes tokens or bodies to a logger.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Writes `time`, `level`, `logger`, `message`, the extra fields and, if there is one, `error`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
        }
        entry |= _extra(record)
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """Writes the extra fields after the message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """The line without a trace."""
        fields = "".join(f" {name}={value}" for name, value in _extra(record).items())
        return super().formatMessage(record) + fields


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def configure(*, level: str, style: str) -> None:
    """Send the log of the whole process to standard error.

    Args:
        level: Threshold for the operator's own loggers; libraries log from WARNING on.
        style: `json` or `text`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("elasticjob").setLevel(level)
    # It warns that signals are not handled in its thread; they are, by the supervisor.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
