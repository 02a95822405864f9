"""The error family of the rendezvous.

One tree, so that a caller can catch everything (`RendezvousError`) or only what it can act on. Names and meaning
are those of torch elastic, whose users already catch them.
"""


class RendezvousError(Exception):
    """Any failure of the rendezvous."""


class RendezvousClosedError(RendezvousError):
    """The rendezvous is closed: the run has ended and no further round will form."""


class RendezvousTimeoutError(RendezvousError):
    """The rendezvous did not complete within its time-out."""


class RendezvousConnectionError(RendezvousError):
    """The backend cannot be reached. The message names the endpoint and the cause."""

    retry_after: float = 0.0
    """Seconds for which the backend asks to be left alone."""


class RendezvousStateError(RendezvousError):
    """The stored state is corrupt, of a newer format, or too large. The message names the object that holds it."""


class RendezvousGracefulExitError(RendezvousError):
    """A node that was kept as a spare is told to end because the run is over. Not a failure."""
