"""The few ways in which a call to the API server can fail.

A caller decides by type: retry later (`Unavailable`, `TooManyRequests`), read again and plan anew (`Conflict`), show it
and wait for somebody to change something (`Forbidden`, `Invalid`). `str(error)` is the API server's own sentence, as
users know it from kubectl.
"""


class ClusterError(Exception):
    """A call to the API server failed.

    Args:
        message: The API's own words, or those of the connection that failed.
        status: HTTP status; 0 if there was no answer.
        reason: The API's `reason`, e.g. `AlreadyExists`.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class NotFound(ClusterError):  # noqa: N818 - named as the API names it
    """There is no such object, or no such kind (404)."""


class Conflict(ClusterError):  # noqa: N818
    """The object changed since it was read, or another one has taken its name (409)."""


class AlreadyExists(ClusterError):  # noqa: N818
    """An object of this name exists (409)."""


class Forbidden(ClusterError):  # noqa: N818
    """Refused by RBAC, a quota, an admission policy or because the namespace is being deleted (403)."""


class Invalid(ClusterError):  # noqa: N818
    """The request can never succeed as it is (400, 413, 422)."""


class TooManyRequests(ClusterError):  # noqa: N818
    """The server asks to slow down (429). `retry_after` is in seconds."""

    def __init__(self, message: str, *, retry_after: float, reason: str = "") -> None:
        super().__init__(message, status=429, reason=reason)
        self.retry_after = retry_after


class Unavailable(ClusterError):  # noqa: N818
    """No usable answer: connection, deadline, credentials (401) or a fault of the server (5xx)."""


class Starting(Unavailable):
    """A part of this process is not ready yet. No trouble: if it lasts, that part says why."""


class NotLeader(ClusterError):  # noqa: N818
    """This process does not hold the lease (any more): the call was not made."""
