"""What the modules about Kubernetes share: the port to ConfigMaps, its errors, and names on objects."""

from typing import Any, Protocol

from elasticjob.rendezvous.errors import RendezvousConnectionError

RUN_ID_ANNOTATION = "elasticjob.dev/run-id"
MANAGED_LABELS = {"app.kubernetes.io/managed-by": "elasticjob"}
"""Labels of objects that workers make, which nobody owns: what is left of old runs is found, and deleted, by them."""


class AlreadyExists(Exception):  # noqa: N818 - named after the reason of the API
    """An object of this name exists."""


class Conflict(Exception):  # noqa: N818 - named after the reason of the API
    """The object has been changed, deleted, or made anew since it was read."""


class ThrottledError(RendezvousConnectionError):
    """The API server asks to come back later. `retry_after` is in seconds."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ConfigMaps(Protocol):
    """The ConfigMaps of one namespace, as plain JSON objects.

    Every call has a deadline. Whatever is neither an object nor one of the named errors (refused, throttled, failed,
    timed out, not reached) is raised as `RendezvousConnectionError` that names the endpoint and the cause; an object
    that the server finds too large as `RendezvousStateError`.
    """

    def read(self, name: str) -> dict[str, Any] | None:
        """The object, or None when there is none of this name."""

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make an object and return it as stored.

        Raises:
            AlreadyExists: There is one of this name.
        """

    def replace(self, body: dict[str, Any]) -> dict[str, Any]:
        """Write an object that carries `metadata.uid` and `metadata.resourceVersion`, and return it as stored.

        Raises:
            Conflict: The stored object has another UID or resourceVersion, or is gone.
        """
