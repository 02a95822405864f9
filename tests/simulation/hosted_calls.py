"""Pods of the simulated cluster, and what their agents and the leaders say to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elasticjob.rendezvous.orders import NodePhase
from elasticjob.rendezvous.protocol import (
    EndpointRequest,
)

if TYPE_CHECKING:
    from .hosted_agent import Agent
    from .hosted_leader import Leader

Reply = Callable[[object], None]


@dataclass(kw_only=True)
class Pod:
    """The truth about one pod."""

    uid: str
    index: int
    phase: NodePhase = NodePhase.ALIVE


@dataclass(frozen=True, kw_only=True)
class EndpointQuery:
    """A member asks where the store of its round listens."""

    incarnation: str
    round: int
    wait: float


@dataclass(frozen=True, kw_only=True)
class Publication:
    """An agent says where the store of a round listens."""

    round: int
    request: EndpointRequest


@dataclass(kw_only=True)
class Call:
    """One call of an agent, and under which numbers leaders hold it."""

    agent: Agent
    request: object
    reply: Reply
    held: list[tuple[Leader, int]] = field(default_factory=list)
