"""All states below one prefix of etcd's v3 API, for whoever looks after states that nobody uses any more.

Names are listed in pages and without the values, which may be large. What is erased is named with the token of the
value that was read: a state that somebody has written in the meantime stays.
"""

from collections.abc import Sequence

from elasticjob.rendezvous.backends.etcd import DEFAULT_PREFIX, EtcdToken, state_directory
from elasticjob.rendezvous.backends.etcd_client import EtcdClient
from elasticjob.rendezvous.backends.options import FOR_EVER, etcd_options
from elasticjob.rendezvous.parameters import RendezvousParameters


class EtcdStates:
    """The states of all runs. A name is a run id, with unusual characters escaped."""

    def __init__(self, client: EtcdClient, *, prefix: str = DEFAULT_PREFIX) -> None:
        """Use a client that exists; see `EtcdRendezvousBackend`."""
        self._client = client
        self._directory = state_directory(prefix)

    def names(self, *, after: str = "", limit: int) -> Sequence[str]:
        """At most `limit` names in order, beginning behind a name that need not exist (any more).

        Raises:
            RendezvousConnectionError: etcd cannot be reached or refuses.
        """
        keys = self._client.keys(self._directory, after=self._directory + after if after else "", limit=limit)
        return [key.removeprefix(self._directory) for key in keys]

    def read(self, name: str) -> tuple[bytes, EtcdToken] | None:
        """What is stored under the name, and its token; None if nothing is.

        Raises:
            RendezvousConnectionError: etcd cannot be reached or refuses.
        """
        key = self._directory + name
        found = self._client.get(key)[0]
        return None if found is None else (found.value, EtcdToken(key=key, mod_revision=found.mod_revision))

    def erase(self, token: EtcdToken) -> bool:
        """Remove what was read, unless it has changed since; False if it has.

        Raises:
            RendezvousConnectionError: etcd cannot be reached or refuses.
        """
        return self._client.delete_unchanged(token.key, mod_revision=token.mod_revision)


def open_states(params: RendezvousParameters) -> EtcdStates:
    """The states that `create_backend` of the etcd backend keeps with the same options; the run id does not matter.

    Raises:
        ValueError: An option cannot be used.
        ModuleNotFoundError: etcd3gw is not installed.
    """
    prefix = str(params.get("prefix", DEFAULT_PREFIX))
    return EtcdStates(EtcdClient(etcd_options(params), ttl=FOR_EVER), prefix=prefix)
