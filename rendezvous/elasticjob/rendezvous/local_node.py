"""How this process presents itself to the other nodes in the peer-to-peer mode."""

import itertools
import os
import uuid

from elasticjob.rendezvous.address import local_address
from elasticjob.rendezvous.state import Node

_MAX_NAME_CHARACTERS = 253
_POD_NAME_VARIABLES = ("ELASTICJOB_POD_NAME", "POD_NAME")

_local_ids = itertools.count()


def new_node(local_addr: str | None = None) -> Node:
    """A node of this process that has never been before.

    Raises:
        ValueError: The address is too long to be one.
    """
    address = local_addr or local_address()
    if len(address) > _MAX_NAME_CHARACTERS:
        raise ValueError(f"The local address must have at most {_MAX_NAME_CHARACTERS} characters: {address!r:.80}.")
    names = (os.environ.get(variable, "") for variable in _POD_NAME_VARIABLES)
    return Node(
        key=uuid.uuid4().hex,
        address=address,
        pid=os.getpid(),
        local_id=next(_local_ids),
        name=next(filter(None, names), "")[:_MAX_NAME_CHARACTERS],
    )
