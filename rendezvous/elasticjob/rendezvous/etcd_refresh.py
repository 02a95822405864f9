"""Keeps keys and directories of etcd's v2 API alive for as long as their node is.

What has expired meanwhile, e.g. while this process was paused, comes back: if nobody has noticed, nothing has happened.
"""

from elasticjob.rendezvous.backends.etcd_v2_keys import EtcdV2Keys
from elasticjob.rendezvous.keep_alive import KeepAlive

_REFRESH_PARTS = 3
"""So many times in its time to live is a key refreshed."""


def keep_key(keys: EtcdV2Keys, key: str, value: str, *, ttl: int, name: str) -> KeepAlive:
    """Put a key that lives for `ttl` seconds, and refresh it until the result is stopped.

    Raises:
        RendezvousConnectionError: etcd cannot be reached for the first put.
    """
    pause = ttl / _REFRESH_PARTS

    def beat() -> float:
        if not keys.refresh(key, ttl=ttl):
            keys.put(key, value, ttl=ttl)
        return pause

    keys.put(key, value, ttl=ttl)
    return _started(KeepAlive(beat, name=name), pause)


def keep_directory(keys: EtcdV2Keys, directory: str, *, ttl: int, name: str) -> KeepAlive:
    """Make a directory that lives for `ttl` seconds, or take one over, and refresh it until the result is stopped.

    Raises:
        RendezvousConnectionError: etcd cannot be reached for the first time.
    """
    pause = ttl / _REFRESH_PARTS

    def beat() -> float:
        if not keys.refresh(directory, ttl=ttl, directory=True):
            keys.make_directory(directory, ttl=ttl)
        return pause

    beat()
    return _started(KeepAlive(beat, name=name), pause)


def _started(keep_alive: KeepAlive, pause: float) -> KeepAlive:
    keep_alive.start(pause)
    return keep_alive
