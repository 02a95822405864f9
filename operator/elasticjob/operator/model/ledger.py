"""What has been counted and decided for good, so that neither happens twice.

The ledger knows each node's *attempts*: the pods it has had, numbered from 0. `seen` says how many have existed,
`ended` how many are over and accounted for. An attempt below `ended` has no more influence on anything, whatever its
pod still does. So `ended <= seen`, the next pod of a node is attempt `ended`, and an attempt that was seen, is not over
and has no pod was deleted behind our back. One stored ledger makes counting exact across a crash at any point: an end
is stored first and acted upon afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticjob.operator.model.fields import number, parsed, text, texts, without_empty
from elasticjob.operator.model.indexes import format_indexes, format_numbers, parse_indexes, parse_numbers


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What has been accounted for.

    Args:
        indexes: The nodes of the job: the chosen ones keep their index whatever leaves.
        seen, ended: Number of attempts by index.
        completed: Nodes whose worker has succeeded. They are not started anew.
        failures, disruptions: Incidents so far. Pods that fail in the same round are one incident.
        round_failures, round_disruptions: The same by index since the newest round formed.
        round_drained: Those of the disrupted nodes whose disruption was announced in time.
        quick_ends: How often in a row a node ended soon after its pod was made, by index.
        suspects: The machines that replacements should avoid, the newest first.
        ends_in_place: Ends of the worker within its present pod that the kubelet restarts and that are counted, by
            index.
        round: The newest formed round that was taken note of.
        base_round: Rounds up to this one belong to the time before the last suspension.
        resizes: How often the number of nodes was changed.
        charged_at: When the last incident was counted; a stamp.
    """

    indexes: frozenset[int] = frozenset()
    seen: Mapping[int, int] = field(default_factory=dict)
    ended: Mapping[int, int] = field(default_factory=dict)
    completed: frozenset[int] = frozenset()
    failures: int = 0
    disruptions: int = 0
    round_failures: Mapping[int, int] = field(default_factory=dict)
    round_disruptions: Mapping[int, int] = field(default_factory=dict)
    round_drained: frozenset[int] = frozenset()
    quick_ends: Mapping[int, int] = field(default_factory=dict)
    suspects: tuple[str, ...] = ()
    ends_in_place: Mapping[int, int] = field(default_factory=dict)
    round: int = 0
    base_round: int = 0
    resizes: int = 0
    charged_at: str = ""

    @property
    def unfinished(self) -> frozenset[int]:
        """Nodes of the job that have not succeeded."""
        return self.indexes - self.completed

    @property
    def unsettled(self) -> frozenset[int]:
        """Nodes that failed or were disrupted since the newest round formed."""
        return frozenset({*self.round_failures, *self.round_disruptions})

    @property
    def surprised(self) -> frozenset[int]:
        """Those of the unsettled nodes that were lost without notice."""
        return frozenset({*self.round_failures, *(self.round_disruptions.keys() - self.round_drained)})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Ledger":
        """Read a ledger."""
        return cls(
            indexes=parsed(data, "indexes", parse_indexes, frozenset()),
            seen=parsed(data, "seen", parse_numbers, {}),
            ended=parsed(data, "ended", parse_numbers, {}),
            completed=parsed(data, "completed", parse_indexes, frozenset()),
            failures=number(data, "failures"),
            disruptions=number(data, "disruptions"),
            round_failures=parsed(data, "roundFailures", parse_numbers, {}),
            round_disruptions=parsed(data, "roundDisruptions", parse_numbers, {}),
            round_drained=parsed(data, "roundDrained", parse_indexes, frozenset()),
            quick_ends=parsed(data, "quickEnds", parse_numbers, {}),
            suspects=texts(data, "suspects"),
            ends_in_place=parsed(data, "endsInPlace", parse_numbers, {}),
            round=number(data, "round"),
            base_round=number(data, "baseRound"),
            resizes=number(data, "resizes"),
            charged_at=text(data, "chargedAt"),
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form. Empty parts are left out."""
        return without_empty(
            {
                "indexes": format_indexes(self.indexes),
                "seen": format_numbers(self.seen),
                "ended": format_numbers(self.ended),
                "completed": format_indexes(self.completed),
                "failures": self.failures,
                "disruptions": self.disruptions,
                "roundFailures": format_numbers(self.round_failures),
                "roundDisruptions": format_numbers(self.round_disruptions),
                "roundDrained": format_indexes(self.round_drained),
                "quickEnds": format_numbers(self.quick_ends),
                "suspects": list(self.suspects),
                "endsInPlace": format_numbers(self.ends_in_place),
                "round": self.round,
                "baseRound": self.base_round,
                "resizes": self.resizes,
                "chargedAt": self.charged_at,
            }
        )
