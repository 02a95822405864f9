"""The name of this host, found without ever making an event wait.

A reverse look-up can take half a minute where DNS is broken, and may answer `localhost` or an `.arpa` name. So it is
done at most once in the life of a process, in a thread of its own, and waited for only a moment; within a pod, whose
name is known, it is not done at all. The name is for display. Nothing may take it for the identity of a node.
"""

import os
import socket
import threading
from collections.abc import Callable, Mapping

POD_NAME_VARIABLES = ("ELASTICJOB_POD_NAME", "POD_NAME")

LOOKUP_SECONDS = 0.05


def _fqdn() -> str:
    return socket.getfqdn()


class HostName:
    """Finds the name once and remembers it."""

    def __init__(
        self,
        *,
        lookup: Callable[[], str] = _fqdn,
        environ: Mapping[str, str] = os.environ,
        patience: float = LOOKUP_SECONDS,
    ) -> None:
        self._lookup = lookup
        self._environ = environ
        self._patience = patience
        self._lock = threading.Lock()
        self._name = ""

    def get(self) -> str:
        """Return the name. Waits for `patience` seconds at most, once; never raises, never empty."""
        with self._lock:
            if not self._name:
                self._name = self._find()
            return self._name

    def _find(self) -> str:
        for variable in POD_NAME_VARIABLES:
            if self._environ.get(variable):
                return self._environ[variable]
        return self._looked_up() or self._environ.get("HOSTNAME") or _own_name()

    def _looked_up(self) -> str:
        answers: list[str] = []

        def ask() -> None:
            try:
                answers.append(self._lookup())
            except Exception:  # any failure of a resolver means the same: no name
                answers.append("")

        try:
            thread = threading.Thread(target=ask, name="elasticjob-host-name", daemon=True)
            thread.start()
            thread.join(self._patience)
        except RuntimeError:  # no thread to be had: the system is short of them, or the interpreter is ending
            return ""
        return answers[0] if answers and _is_useful(answers[0]) else ""


def _is_useful(name: str) -> bool:
    return bool(name) and not name.startswith("localhost") and not name.rstrip(".").endswith(".arpa")


def _own_name() -> str:
    try:
        return socket.gethostname() or "unknown"
    except OSError:
        return "unknown"


host_name = HostName()
