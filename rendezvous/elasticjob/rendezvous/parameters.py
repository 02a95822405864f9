"""What a rendezvous handler is made from.

The options of a backend come as text from a command line (`--rdzv-conf key=value,...`) or as values from code; the
getters accept both and refuse what they cannot read by the name of the option.
"""

from typing import Any

_TRUE = frozenset({"1", "true", "t", "yes", "y"})
_FALSE = frozenset({"0", "false", "f", "no", "n"})


class RendezvousParameters:
    """The parameters of a `RendezvousHandler`.

    Args:
        backend: Name of the backend.
        endpoint: Endpoint of the backend, usually `<host>[:<port>]`.
        run_id: Id of the run.
        min_nodes: Fewest nodes to admit.
        max_nodes: Most nodes to admit.
        local_addr: Address under which the other nodes reach this one.
        **kwargs: Options of the backend.

    Raises:
        ValueError: The backend has no name, or the numbers of nodes cannot be.
    """

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - whatever a backend understands
    ) -> None:
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        if min_nodes < 1:
            raise ValueError(f"The minimum number of rendezvous nodes ({min_nodes}) must be greater than zero.")
        if max_nodes < min_nodes:
            raise ValueError(
                f"The maximum number of rendezvous nodes ({max_nodes}) must be greater than or equal to "
                f"the minimum number of rendezvous nodes ({min_nodes})."
            )
        self.backend = backend
        self.endpoint = endpoint
        self.run_id = run_id
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.local_addr = local_addr
        self.config: dict[str, Any] = kwargs

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401
        """Return the value of an option, or `default` if it is not given."""
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """Return the value of an option as a truth value.

        Raises:
            ValueError: It does not represent one.
        """
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, str)):
            text = str(value).lower()
            if text in _TRUE:
                return True
            if text in _FALSE:
                return False
        raise ValueError(f"The rendezvous configuration option '{key}' does not represent a valid boolean value.")

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """Return the value of an option as a whole number.

        Raises:
            ValueError: It does not represent one.
        """
        value = self.get(key, default)
        if value is None:
            return None
        try:
            return int(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(
                f"The rendezvous configuration option '{key}' does not represent a valid integer value."
            ) from error
