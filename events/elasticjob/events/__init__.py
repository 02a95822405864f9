"""Events of elastic jobs, on top of the standard `logging`.

Usage::

    from elasticjob import events

    event = events.Event(name="checkpoint", source=events.EventSource.WORKER, metadata={"step": 100})
    events.record(event, destination="console")

An event is one line of JSON, logged at INFO by the logger `torchelastic-events-<destination>`; `handlers` says where it
goes from there. Names and signatures are those of `torch.distributed.elastic.events`.

Recording never raises into the code that records, and never makes it wait for more than a moment: telemetry must not
decide what becomes of a job. What cannot be recorded is dropped and told in one warning.
"""

import logging
import os
import sys
import threading
import traceback

from elasticjob.events.api import Event, EventMetadataValue, EventSource, NodeState, RdzvEvent
from elasticjob.events.delivery import carriers
from elasticjob.events.handlers import SILENT, get_logging_handler, register_logging_handler
from elasticjob.events.hostname import host_name

__all__ = [
    "Event",
    "EventMetadataValue",
    "EventSource",
    "NodeState",
    "RdzvEvent",
    "construct_and_record_rdzv_event",
    "get_logging_handler",
    "record",
    "record_rdzv_event",
    "register_logging_handler",
]

logger = logging.getLogger(__name__)

_RENDEZVOUS = "dynamic_rendezvous"

_loggers: dict[str, tuple[logging.Logger, logging.Handler]] = {}
_loggers_lock = threading.Lock()
_warned: set[str] = set()


def record(event: Event, destination: str = "null") -> None:
    """Record an event. Never raises.

    Args:
        event: What happened.
        destination: Where it goes; one of the destinations of `handlers`.
    """
    _record(event, destination)


def record_rdzv_event(event: RdzvEvent) -> None:
    """Record a rendezvous event at the destination `dynamic_rendezvous`. Never raises."""
    _record(event, _RENDEZVOUS)


def construct_and_record_rdzv_event(
    run_id: str,
    message: str,
    node_state: NodeState,
    name: str = "",
    hostname: str = "",
    pid: int | None = None,
    master_endpoint: str = "",
    local_id: int | None = None,
    rank: int | None = None,
) -> None:
    """Build a rendezvous event and record it. Does nothing if nobody listens. Never raises.

    The name of the recorded event is `<file of the caller>:<name>`. An event that tells of a failure carries the trace
    of the exception that is being handled, if there is one.

    Args:
        run_id: Id of the run.
        message: What happened, for people.
        node_state: State of the node.
        name: What was being done; by default the name of the calling function.
        hostname: Host name of the node; by default that of this host.
        pid: Process id of the node; by default that of this process.
        master_endpoint: Where the store of rank 0 listens, if known.
        local_id: Which node of its process it is, if known.
        rank: Rank of the node, if known.
    """
    try:
        handler = get_logging_handler("dynamic_rendezvous")
        # Asked first because it is the usual case, and faster than the question after it.
        if handler is SILENT or isinstance(handler, logging.NullHandler):
            return
        code = sys._getframe(1).f_code
        is_handling = sys.exc_info()[0] is not None
        event = RdzvEvent(
            name=f"{os.path.basename(code.co_filename)}:{name or code.co_name}",  # noqa: PTH119 - hot path
            run_id=run_id,
            message=message,
            hostname=hostname or host_name.get(),
            pid=os.getpid() if pid is None else pid,
            node_state=node_state,
            master_endpoint=master_endpoint,
            rank=rank,
            local_id=local_id,
            error_trace=traceback.format_exc() if node_state == NodeState.FAILED and is_handling else "",
        )
        record_rdzv_event(event)
    except Exception as error:
        _warn_once(_RENDEZVOUS, error)


def _record(event: Event | RdzvEvent, destination: str) -> None:
    try:
        sink = _get_or_create_logger(destination)
        if _is_listening(sink):
            carriers.to(destination).carry(sink.info, event.serialize())
    except Exception as error:
        _warn_once(destination, error)


def _is_listening(sink: logging.Logger) -> bool:
    if not sink.isEnabledFor(logging.INFO):
        return False
    return any(not isinstance(handler, logging.NullHandler) for handler in sink.handlers)


def _get_or_create_logger(destination: str = "null") -> logging.Logger:
    """Return the logger of a destination, with the handler that is registered now.

    Handlers that somebody else has put on the logger are left alone. Nothing reaches the root logger.
    """
    handler = get_logging_handler(destination)
    known = _loggers.get(destination)
    if known is not None and known[1] is handler:
        return known[0]
    with _loggers_lock:
        known = _loggers.get(destination)
        if known is None:
            sink = logging.getLogger(f"torchelastic-events-{destination}")
            sink.setLevel(_level())
            sink.propagate = False
        else:
            sink = known[0]
            sink.removeHandler(known[1])
        sink.addHandler(handler)
        _loggers[destination] = (sink, handler)
        return sink


def _level() -> int:
    """The level that LOGLEVEL asks for, by name or number; INFO if it names none."""
    wanted = os.environ.get("LOGLEVEL", "INFO").strip().upper()
    if wanted.isdecimal():
        return int(wanted)
    level = logging.getLevelName(wanted)
    return level if isinstance(level, int) else logging.INFO


def _warn_once(destination: str, error: Exception) -> None:
    if destination not in _warned:
        _warned.add(destination)
        logger.warning("An event for %r could not be recorded: %s: %s", destination, type(error).__name__, error)


def _renew_lock_after_fork() -> None:
    global _loggers_lock
    _loggers_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock_after_fork)
