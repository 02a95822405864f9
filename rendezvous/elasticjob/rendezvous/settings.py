"""Time-outs and settings of a rendezvous.

Names and defaults are those of torch elastic; `cas_backoff_max_seconds` is in torch since 2.15.
"""

import math
from dataclasses import dataclass
from datetime import timedelta

from elasticjob.rendezvous.parameters import RendezvousParameters

_DEFAULTS = {
    "join": timedelta(seconds=600),
    "last_call": timedelta(seconds=30),
    "close": timedelta(seconds=30),
    "heartbeat": timedelta(seconds=5),
}


class RendezvousTimeout:
    """How long the steps of a rendezvous may take.

    Args:
        join: Time within which the rendezvous must be complete; 600 s by default.
        last_call: Time that a rendezvous with enough nodes waits for more of them; 30 s by default.
        close: Time within which a rendezvous must be closed or left after `set_closed()` or `shutdown()`; 30 s by
            default.
        heartbeat: Time within which a keep-alive heartbeat must be through; 5 s by default.

    Raises:
        ValueError: A time-out is not positive.
    """

    def __init__(
        self,
        join: timedelta | None = None,
        last_call: timedelta | None = None,
        close: timedelta | None = None,
        heartbeat: timedelta | None = None,
    ) -> None:
        self._join = _positive("join", join)
        self._last_call = _positive("last_call", last_call)
        self._close = _positive("close", close)
        self._heartbeat = _positive("heartbeat", heartbeat)

    def __repr__(self) -> str:
        return (
            f"RendezvousTimeout(join={self._join!r}, last_call={self._last_call!r}, "
            f"close={self._close!r}, heartbeat={self._heartbeat!r})"
        )

    @property
    def join(self) -> timedelta:
        """Time within which the rendezvous must be complete."""
        return self._join

    @property
    def last_call(self) -> timedelta:
        """Time that a rendezvous with enough nodes waits for more of them."""
        return self._last_call

    @property
    def close(self) -> timedelta:
        """Time within which a rendezvous must be closed or left."""
        return self._close

    @property
    def heartbeat(self) -> timedelta:
        """Time within which a heartbeat must be through."""
        return self._heartbeat


@dataclass(repr=False, eq=False, frozen=True)
class RendezvousSettings:
    """Settings of a rendezvous. Every node applies its own, so all should have the same.

    Args:
        run_id: Id of the run.
        min_nodes: Fewest nodes that a round may have.
        max_nodes: Most nodes that a round may have.
        timeout: How long the steps may take.
        keep_alive_interval: Time between two heartbeats of a node.
        keep_alive_max_attempt: So many intervals without a heartbeat make a node count as dead.
        cas_backoff_max_seconds: Largest random pause after a lost write, in seconds; 0 to choose it by the number of
            nodes.

    Raises:
        ValueError: A value cannot be used. The message gives it.
    """

    run_id: str
    min_nodes: int
    max_nodes: int
    timeout: RendezvousTimeout
    keep_alive_interval: timedelta
    keep_alive_max_attempt: int
    cas_backoff_max_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.run_id or not self.run_id.strip():
            raise ValueError("The run id must be a non-empty string.")
        if self.min_nodes < 1:
            raise ValueError(f"The minimum number of nodes ({self.min_nodes}) must be greater than zero.")
        if self.max_nodes < self.min_nodes:
            raise ValueError(
                f"The maximum number of nodes ({self.max_nodes}) must be greater than or equal to "
                f"the minimum number of nodes ({self.min_nodes})."
            )
        if self.keep_alive_interval <= timedelta(0):
            raise ValueError(f"The keep-alive interval ({self.keep_alive_interval}) must be positive.")
        if self.keep_alive_max_attempt < 1:
            raise ValueError(
                f"The maximum number of keep-alive attempts ({self.keep_alive_max_attempt}) must be greater than zero."
            )
        if not math.isfinite(self.cas_backoff_max_seconds) or self.cas_backoff_max_seconds < 0:
            raise ValueError(
                f"cas_backoff_max_seconds ({self.cas_backoff_max_seconds}) must be finite and non-negative."
            )

    @classmethod
    def from_parameters(cls, params: RendezvousParameters) -> "RendezvousSettings":
        """Read the settings from the options of a backend; see `dynamic_rendezvous.create_handler`.

        Raises:
            ValueError: An option cannot be used. The message names it.
        """
        backoff = params.get("cas_backoff_max_seconds", 0.0)
        try:
            backoff = float(backoff)
        except (TypeError, ValueError) as error:
            raise ValueError(f"cas_backoff_max_seconds ({backoff!r}) is not a number.") from error
        timeouts = {name: params.get_as_int(f"{name}_timeout") for name in _DEFAULTS}
        return cls(
            run_id=params.run_id,
            min_nodes=params.min_nodes,
            max_nodes=params.max_nodes,
            timeout=RendezvousTimeout(
                **{name: None if value is None else timedelta(seconds=value) for name, value in timeouts.items()}
            ),
            keep_alive_interval=timedelta(seconds=_given(params, "keep_alive_interval", 5)),
            keep_alive_max_attempt=_given(params, "keep_alive_max_attempt", 3),
            cas_backoff_max_seconds=backoff,
        )

    @property
    def expiry(self) -> float:
        """Seconds of silence after which a node counts as dead."""
        return self.keep_alive_interval.total_seconds() * self.keep_alive_max_attempt


def _positive(name: str, timeout: timedelta | None) -> timedelta:
    value = _DEFAULTS[name] if timeout is None else timeout
    if value <= timedelta(0):
        raise ValueError(f"The {name} timeout ({value}) must be positive.")
    return value


def _given(params: RendezvousParameters, key: str, default: int) -> int:
    value = params.get_as_int(key, default)
    if value is None:
        raise ValueError(f"The rendezvous configuration option '{key}' must have a value.")
    return value
