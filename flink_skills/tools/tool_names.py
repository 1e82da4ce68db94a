"""Names of tools and skills: patterns that match them, and tools of other agents that a model names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flink_skills.errors import near_misses
from flink_skills.texts import table
from flink_skills.tools.profiles import TOOL_NAMES

_FEWEST_LETTERS = 2
_SHOWN_TOOLS = 2

_SEPARATOR = re.compile(r"__|[.:/]")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Some providers date their tools: text_editor_20250124.
_DATE = re.compile(r"[_-]?20\d{6}$")


def _read_tools() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each name of other agents, with the tools of this package, from the table next to this file."""
    for tools, names in table("other_tools.txt", beside=__file__):
        yield from ((name, tuple(tools.split())) for name in names.split())


_TOOLS: Mapping[str, tuple[str, ...]] = dict(_read_tools())


def suggestion(name: str, known: Collection[str]) -> str:
    """Return a sentence with the tools of ``known`` that ``name`` means or resembles. Return "" if there is none.

    >>> suggestion("Bash", ["load_skill", "execute_shell_command"])
    'Use execute_shell_command instead.'
    >>> suggestion("skill_load", ["load_skill", "price"]), suggestion("prise", ["load_skill", "price"])
    ('Did you mean load_skill?', 'Did you mean price?')
    """
    same = same_tools(name, known)
    if same:
        return f"Did you mean {' or '.join(same)}?"
    instead = _equivalent(name, known)
    if instead:
        return f"Use {' or '.join(instead)} instead."
    # A tool of this package that the model does not have is spelled correctly, and one like it does another job.
    near = near_misses(name, known) if name not in TOOL_NAMES else []
    return f"Did you mean {' or '.join(near)}?" if near else ""


def same_tools(name: str, known: Collection[str]) -> list[str]:
    """Return the tools with the name ``name`` in another spelling, with another prefix or order of words."""
    spellings = _spellings(name)
    words = sorted(_words(name))
    return [tool for tool in known if _plain(tool) in spellings or (len(words) > 1 and sorted(_words(tool)) == words)]


def _equivalent(name: str, known: Collection[str]) -> list[str]:
    """Return the best tools of ``known`` for the job of another agent's tool ``name``."""
    for spelling in _spellings(name):
        tools = _TOOLS.get(spelling)
        if tools is not None:
            found = [tool for tool in tools if tool in known]
            return found[: 1 if found[:1] == [tools[0]] else _SHOWN_TOOLS]
    return []


def _spellings(name: str) -> list[str]:
    """Return ``name`` in lower case without separators, and its last part if it has a prefix, such as a server's."""
    undated = _DATE.sub("", name.strip())
    last = _SEPARATOR.split(undated)[-1]
    return [plain for plain in dict.fromkeys((_plain(undated), _plain(last))) if len(plain) >= _FEWEST_LETTERS]


def _plain(name: str) -> str:
    return "".join(sign for sign in name.casefold() if sign.isalnum())


def _words(name: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(name)]


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
    kind: Literal["tool", "skill", "plugin server"] = "tool"
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
