"""The legacy etcd rendezvous of torch elastic as a handler, and how it is made from parameters or from a URL.

The base URL is

    etcd://<host>:<port>/<run id>?min_workers=<fewest nodes>&max_workers=<most nodes>

for example `etcd://localhost:2379/1234?min_workers=1&max_workers=3`. The server must offer etcd's v2 API. How the nodes
agree is told in `etcd_rendezvous_node` and `etcd_rendezvous_state`.
"""

import logging
import threading
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from elasticjob.rendezvous.backends.etcd_v2_keys import connect
from elasticjob.rendezvous.backends.options import bounded_int, etcd_options
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousError
from elasticjob.rendezvous.etcd_rendezvous_node import EtcdRendezvous
from elasticjob.rendezvous.etcd_rendezvous_state import Status
from elasticjob.rendezvous.handler import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo
from elasticjob.rendezvous.parameters import RendezvousParameters

__all__ = ["EtcdRendezvous", "EtcdRendezvousHandler", "create_rdzv_handler", "parameters_from_url"]

DEFAULT_TIMEOUT = 600
DEFAULT_LAST_CALL_TIMEOUT = 30
CLOSE_TIMEOUT = 30.0
DEFAULT_PREFIX = "/torchelastic/p2p"
MAX_TIMEOUT = 7 * 24 * 3600

_OPTION_NAMES = {"cert": "ssl_cert", "key": "ssl_cert_key", "cacert": "ca_cert"}

_logger = logging.getLogger(__name__)


class EtcdRendezvousHandler(RendezvousHandler):
    """The legacy etcd rendezvous as a handler."""

    def __init__(self, rdzv_impl: EtcdRendezvous, local_addr: str | None = None) -> None:
        """Wrap one node's part in a run.

        Args:
            rdzv_impl: The rendezvous.
            local_addr: Address under which the other nodes reach this one; found out if not given.
        """
        self._rdzv_impl = rdzv_impl
        self._local_addr = local_addr
        self._last_waiting = 0
        self._left = False

    def get_backend(self) -> str:
        """See base class."""
        return "etcd"

    def next_rendezvous(self) -> RendezvousInfo:
        """See base class."""
        version, rank, world_size = self._rdzv_impl.rendezvous_barrier()
        store = self._rdzv_impl.setup_kv_store(version)
        info = RendezvousStoreInfo.build(rank, store, local_addr=self._local_addr)
        return RendezvousInfo(store, rank, world_size, info)

    def is_closed(self) -> bool:
        """See base class."""
        current = self._rdzv_impl.get_round()
        return current is not None and current.status is Status.CLOSED

    def set_closed(self) -> None:
        """See base class."""
        self._rdzv_impl.set_closed()

    def num_nodes_waiting(self) -> int:
        """See base class. Repeats the last answer while etcd cannot be reached: agents do not expect an error here."""
        try:
            self._last_waiting = self._rdzv_impl.num_waiting()
        except RendezvousConnectionError as error:
            _logger.warning("cannot see whether nodes wait, assuming %d as before: %s", self._last_waiting, error)
        return self._last_waiting

    def get_run_id(self) -> str:
        """See base class."""
        return self._rdzv_impl.run_id

    def shutdown(self) -> bool:
        """Leave the run without ending it for the others; False if that did not work within 30 seconds."""
        leaving = threading.Thread(target=self._leave, name="etcd rendezvous shutdown", daemon=True)
        self._left = False
        leaving.start()
        leaving.join(CLOSE_TIMEOUT)
        return self._left

    def _leave(self) -> None:
        try:
            self._rdzv_impl.leave()
        except RendezvousError as error:
            _logger.warning("could not leave the rendezvous of run %r: %s", self.get_run_id(), error)
        else:
            self._left = True


def parameters_from_url(url: str) -> RendezvousParameters:
    """Read `etcd://<host>:<port>/<run id>?min_workers=<n>&max_workers=<m>&<option>=<value>…`.

    `max_workers` is `min_workers` unless given. All other options are passed on.

    Raises:
        ValueError: The URL is of another form; the message says what is missing.
    """
    parts = urlsplit(url)
    if parts.scheme != "etcd":
        raise ValueError(f"the URL {url!r} has the scheme {parts.scheme!r}, expected 'etcd'")
    options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    minimum = _take_count(options, "min_workers", None, url)
    return RendezvousParameters(
        "etcd",
        parts.netloc,
        unquote(parts.path[1:]),
        minimum,
        _take_count(options, "max_workers", str(minimum), url),
        **options,
    )


def _take_count(options: dict[str, str], name: str, default: str | None, url: str) -> int:
    text = options.pop(name, default)
    if text is None or not text.isdecimal():
        raise ValueError(f"the URL {url!r} needs {name} as a whole number, not {text!r}")
    return int(text)


def create_rdzv_handler(params: RendezvousParameters | str) -> RendezvousHandler:
    """Make a handler on an etcd server that offers the v2 API.

    Options: `timeout` (seconds that a round may take to form, 600), `last_call_timeout` (seconds to wait for more
    nodes once the fewest have joined, 30), `etcd_prefix` (directory of all runs, `/torchelastic/p2p`), `protocol`
    (http, https), `read_timeout` (seconds a request, 60), `cert`, `key`, `cacert` (paths).

    Args:
        params: The parameters, or a URL `etcd://<host>:<port>/<run id>?min_workers=…`.

    Raises:
        ValueError: An option, the endpoint or the run id cannot be used.
        ModuleNotFoundError: python-etcd is not installed.
    """
    if isinstance(params, str):
        params = parameters_from_url(params)
    rdzv = EtcdRendezvous(
        client=connect(etcd_options(_with_common_names(params))),
        prefix=str(params.get("etcd_prefix", DEFAULT_PREFIX)),
        run_id=params.run_id,
        num_min_workers=params.min_nodes,
        num_max_workers=params.max_nodes,
        timeout=bounded_int(params, "timeout", DEFAULT_TIMEOUT, maximum=MAX_TIMEOUT),
        last_call_timeout=bounded_int(
            params, "last_call_timeout", DEFAULT_LAST_CALL_TIMEOUT, maximum=MAX_TIMEOUT, minimum=0
        ),
    )
    return EtcdRendezvousHandler(rdzv_impl=rdzv, local_addr=params.local_addr)


def _with_common_names(params: RendezvousParameters) -> RendezvousParameters:
    config: dict[str, Any] = {_OPTION_NAMES.get(name, name): value for name, value in params.config.items()}
    return RendezvousParameters(
        params.backend, params.endpoint, params.run_id, params.min_nodes, params.max_nodes, params.local_addr, **config
    )
