"""The etcd v2 state backend under the names, keys and messages of torch elastic.

`create_backend` puts the state and the store where torch puts them, connects at once and speaks torch's words, so that
programs and tests written for torch work. New code uses `elasticjob.rendezvous.backends`, whose errors say more, which
sends nothing before it has to, and whose stores are separate for each run.
"""

from elasticjob.rendezvous.backends.etcd_v2 import EtcdV2RendezvousBackend
from elasticjob.rendezvous.backends.etcd_v2_keys import EtcdV2Keys, connect
from elasticjob.rendezvous.backends.options import (
    DEFAULT_READ_TIMEOUT,
    EtcdOptions,
    etcd_options,
)
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.etcd_store import EtcdStore
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.store import Store

STATE_PREFIX = "/torch/elastic/rendezvous"
STORE_PREFIX = "/torch/elastic/store"


class EtcdRendezvousBackend(EtcdV2RendezvousBackend):
    """Holds the state in one key; see `EtcdV2RendezvousBackend` for the arguments."""


def create_backend(params: RendezvousParameters) -> tuple[EtcdRendezvousBackend, Store]:
    """Make a backend and a store on an etcd server that offers the v2 API.

    Options: `protocol` (http, https), `read_timeout` (seconds a request, 60), `ssl_cert`, `ssl_cert_key`, `ca_cert`
    (paths).

    Raises:
        ValueError: An option or the run id cannot be used.
        RendezvousConnectionError: etcd cannot be reached; the inner exception names the endpoint and the cause.
        ModuleNotFoundError: python-etcd is not installed.
    """
    client = connect(_options(params))
    try:
        EtcdV2Keys(client).read(STATE_PREFIX)
    except RendezvousConnectionError as error:
        raise RendezvousConnectionError(
            "The connection to etcd has failed. See inner exception for details."
        ) from error
    backend = EtcdRendezvousBackend(client, params.run_id, key_prefix=STATE_PREFIX)
    return backend, EtcdStore(client, STORE_PREFIX)


def _options(params: RendezvousParameters) -> EtcdOptions:
    if str(params.get("protocol", "http")).strip().lower() not in ("http", "https"):
        raise ValueError("The protocol must be HTTP or HTTPS.")
    if (params.get_as_int("read_timeout", DEFAULT_READ_TIMEOUT) or 0) <= 0:
        raise ValueError("The read timeout must be a positive integer.")
    return etcd_options(params)
