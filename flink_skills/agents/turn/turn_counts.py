"""Counts of ended and failed turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["TurnCounts", "kind_of", "listed_kinds"]


@dataclass(frozen=True)
class TurnCounts:
    """Ended turns of one agent, and those that failed by the class of their error.

    ``first`` is the message of a failure. Empty without one.
    """

    agent: str
    turns: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    first: str = ""

    @property
    def failed(self) -> int:
        """The number of failed turns."""
        return sum(self.kinds.values())

    @staticmethod
    def total(counts: Iterable[TurnCounts]) -> TurnCounts:
        """Return the sum over agents."""
        turns, kinds, first = 0, Counter[str](), ""
        for each in counts:
            turns += each.turns
            kinds.update(each.kinds)
            first = first or each.first
        return TurnCounts("", turns, kinds, first)


def kind_of(error: str) -> str:
    """Return the class of an error from the text of its record. A text without one is of the kind ``other``.

    >>> kind_of("KeyError: 'a: b'"), kind_of("no key field 'id'")
    ('KeyError', 'other')
    """
    kind = error.partition(":")[0]
    return kind if kind.isidentifier() else "other"


def listed_kinds(kinds: Mapping[str, int]) -> str:
    """Return the numbers of failures, the most frequent kind first.

    >>> listed_kinds({"KeyError": 1, "TurnError": 2})
    '2 TurnError, 1 KeyError'
    """
    return ", ".join(
        f"{number:,} {kind}" for kind, number in sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))
    )
