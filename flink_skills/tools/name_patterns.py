"""Names and patterns of tools and skills: what they match, and what may bring a match later."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from flink_skills.errors import near_misses
from flink_skills.tools.other_tools import same_tools

__all__ = [
    "KnownNames",
    "NameMatch",
    "NameUse",
    "has_wildcard",
    "hint",
    "literal_start",
    "matches",
    "resolve",
    "starts_match",
]

_WILDCARD = re.compile(r"[*?\[]")
_SHOWN = 12
_MAX_NAME = 100


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return True if a name is one of ``patterns``, or fits one. Patterns are those of shells.

    >>> matches("files_Write", ["files_*"]), matches("Pay", ["pay"])
    (True, False)
    """
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def starts_match(pattern: str, prefix: str) -> bool:
    """Return True if a name that begins with ``prefix`` may match ``pattern``.

    >>> starts_match("shop_*", "shop_"), starts_match("price", "shop_"), starts_match("*", "shop_")
    (True, False, True)
    """
    if not has_wildcard(pattern):
        return pattern.startswith(prefix) and len(pattern) > len(prefix)
    head = literal_start(pattern)
    return head.startswith(prefix) or prefix.startswith(head)


def has_wildcard(pattern: str) -> bool:
    """Return True if a pattern is more than a name."""
    return _WILDCARD.search(pattern) is not None


def literal_start(pattern: str) -> str:
    """Return the part of a pattern before its first wildcard.

    >>> literal_start("shop_pay*"), literal_start("pay")
    ('shop_pay', 'pay')
    """
    return _WILDCARD.split(pattern, maxsplit=1)[0]


def hint(pattern: str, known: Iterable[str], kind: str = "tool") -> str:
    """Return the sentence that says which names a wrong one may mean, or which names exist.

    >>> hint("PayRefund", ["pay_refund"]), hint("x", ["pay", "price"])
    ("Did you mean 'pay_refund'?", 'Tools: pay, price.')
    """
    names = sorted(set(known))
    bare = re.sub(r"[*?\[\]]", "", pattern)
    near = [name for name in same_tools(bare, names) or near_misses(bare, names, 1) if len(name) > 1] if bare else []
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    if not names:
        return f"There is no {kind}."
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{kind.capitalize()}s: {', '.join(names[:_SHOWN])}{more}."


@dataclass(frozen=True)
class NameUse:
    """A name or pattern that a user wrote.

    Attributes:
        place: Where it is written, for messages: an attribute, a key or an option.
        pattern: The name or pattern.
        kind: What it names.
        is_exact: True if it is a name, and has no wildcards.
        is_strict: True if it must match what exists now, unless a server reports its changes. A wrong name would remove
            a protection.
        approves: True if the calls of the tools that it matches need an approval.
        only_warns: True if it never is an error.
    """

    place: str
    pattern: str
    kind: Literal["tool", "skill"] = "tool"
    is_exact: bool = False
    is_strict: bool = False
    approves: bool = False
    only_warns: bool = False

    def fits(self, name: str) -> bool:
        """Return True if this is the name, or matches it."""
        return name == self.pattern if self.is_exact else matches(name, (self.pattern,))

    @property
    def id(self) -> str:
        """The text that tells it from the other names of a job."""
        return f"{self.place}={self.pattern}"


@dataclass(frozen=True)
class KnownNames:
    """The names that exist, and a function that returns what can bring a name later, such as a server."""

    names: frozenset[str]
    bringers: Callable[[NameUse], Sequence[str]] = lambda use: ()


@dataclass(frozen=True)
class NameMatch:
    """Matches of a name or pattern. ``problem`` is empty if there are any, and a warning if they can come later."""

    use: NameUse
    names: tuple[str, ...] = ()
    problem: str = ""
    is_error: bool = False

    def __str__(self) -> str:
        return self.problem or f"{self.use.place}: {self.shown}"

    @property
    def reason(self) -> str:
        """The problem without the place."""
        return self.problem.removeprefix(f"{self.use.place}: ")

    @property
    def shown(self) -> str:
        """The pattern, with the names that it matches."""
        if self.names == (self.use.pattern,):
            return self.use.pattern
        return f"{self.use.pattern} ({', '.join(self.names) or f'no {self.use.kind}'})"


def resolve(use: NameUse, owner: str, known: Sequence[KnownNames]) -> NameMatch:
    """Return what a name or pattern matches among all of ``known``. ``owner`` is what has these names, for messages.

    >>> known = [KnownNames(frozenset({"pay_refund"}))]
    >>> resolve(NameUse("approve_tools", "pay_refnd"), "agent 'refunds'", known).problem
    "approve_tools: 'pay_refnd' matches no tool of agent 'refunds'. Did you mean 'pay_refund'?"
    """
    names = {name for each in known for name in each.names}
    found = tuple(sorted(filter(use.fits, names)))
    if found:
        return NameMatch(use, found)
    bringers = list(dict.fromkeys(of for each in known for of in each.bringers(use)))
    pattern = use.pattern if len(use.pattern) <= _MAX_NAME else use.pattern[:_MAX_NAME] + "…"
    said = f"{use.place}: {pattern!r} matches no {use.kind} of {owner}"
    help_ = hint(pattern, names, use.kind)
    if bringers:
        sources = " or ".join(bringers)
        return NameMatch(use, (), f"{said} yet. {sources[0].upper()}{sources[1:]} can bring it later. {help_}")
    return NameMatch(use, (), f"{said}. {help_}", is_error=not use.only_warns)
