"""Patterns of files, and walks over folders that may change meanwhile.

Patterns are matched part by part during a walk, in time that grows only with pattern times name. ``*`` and ``?`` stay
within a name, ``**`` is any number of folders, ``[a-z]`` one character of a set (``[!…]`` none of it) and ``{a,b}``
either. Names that start with a dot are names like others.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

from flink_skills.execution.workspace.safe_files import Reach
from flink_skills.execution.workspace.workspace_paths import WorkspacePathError, parts_of

#: Maximum entries in a walk, and folders above a file.
MAX_ENTRIES = 200_000
MAX_DEPTH = 48

P = TypeVar("P")

_MAX_PATTERNS = 256
_MAX_PATTERN = 1000
_ANY_FOLDERS = None

#: Where a folder stands in the patterns: pairs of pattern and part.
Position = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class _One:
    """One character: of a set, or any (``?``)."""

    chars: frozenset[str] = frozenset()
    ranges: tuple[tuple[str, str], ...] = ()
    negated: bool = True

    def matches(self, char: str) -> bool:
        found = char in self.chars or any(low <= char <= high for low, high in self.ranges)
        return found != self.negated


_STAR = _One(frozenset("*"), negated=False)
_ANY = _One()
_Part = tuple[_One, ...]


@dataclass(frozen=True)
class WalkEntry(Generic[P]):
    """A file or folder: its path, its name in the open folder ``parent``, and the position there."""

    parts: tuple[str, ...]
    parent: int
    position: P
    is_folder: bool


class Walk(ABC, Generic[P]):
    """Walk over regular files and folders in the order of their paths. Folders are held open, links are not followed.

    Each folder has a position, which :meth:`enter` derives from its name and from the parent folder's position.
    ``limits`` are the limits that were reached: ``max_entries`` and ``max_depth``.
    """

    def __init__(self, reach: Reach) -> None:
        self.limits: set[str] = set()
        self._reach = reach
        self._entries = 0

    @abstractmethod
    def enter(self, name: str, position: P) -> P | None:
        """Return the position of a folder. Return None to omit what is in it."""

    @abstractmethod
    def accepts(self, entry: os.DirEntry[str], parts: tuple[str, ...], position: P) -> bool:
        """Return True for an entry of the folder ``parts`` that the walk yields."""

    def continues(self) -> bool:
        """Return False to end the walk early."""
        return True

    def failed(self, parts: tuple[str, ...], error: OSError) -> None:
        """Handle a folder that cannot be opened. By default it is omitted."""

    def folder(self, parts: tuple[str, ...], parent: int, position: P) -> Iterator[WalkEntry[P]]:
        """Yield the entries below the folder ``parts`` in the open folder ``parent``. Omit it if it is missing."""
        with ExitStack() as stack:
            try:
                descriptor = stack.enter_context(self._reach.folder(parts[-1], parent))
                entries = self._listed(descriptor, parts, position)
            except FileNotFoundError:
                return
            except OSError as error:
                self.failed(parts, error)
                return
            yield from self._walk(entries, descriptor, parts, position)

    def below(self, folder: int, parts: tuple[str, ...], position: P) -> Iterator[WalkEntry[P]]:
        """Yield the entries below a folder that is open as ``folder``. A folder precedes its entries."""
        return self._walk(self._listed(folder, parts, position), folder, parts, position)

    def _walk(
        self, entries: list[tuple[str, str]], folder: int, parts: tuple[str, ...], position: P
    ) -> Iterator[WalkEntry[P]]:
        for key, name in entries:
            if not self.continues():
                return
            inner, is_folder = (*parts, name), key.endswith("/")
            yield WalkEntry(inner, folder, position, is_folder)
            if is_folder and (below := self.enter(name, position)) is not None:
                if len(inner) > MAX_DEPTH + 1:
                    self.limits.add("max_depth")
                else:
                    yield from self.folder(inner, folder, below)

    def _listed(self, folder: int, parts: tuple[str, ...], position: P) -> list[tuple[str, str]]:
        """Return keys and names of entries, sorted as their paths: the key of a folder ends with ``/``."""
        found: list[tuple[str, str]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries += 1
                if self._entries > MAX_ENTRIES:
                    self.limits.add("max_entries")
                    break
                if self.accepts(entry, parts, position):
                    found.append((f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name, entry.name))
        return sorted(found)


class Globs:
    """Several patterns relative to a workspace, each beginning with one of ``roots`` or with a wildcard.

    Raises :class:`WorkspacePathError` for a pattern that can match nothing there.

    >>> globs = Globs(["out/**/*.csv"], ["out"])
    >>> globs.is_match("a.csv", globs.enter("out", globs.start))
    True
    """

    def __init__(self, patterns: Iterable[str], roots: Collection[str]) -> None:
        texts: list[str] = []
        for pattern in patterns:
            if len(pattern) > _MAX_PATTERN:
                message = f"pattern {pattern[:80]!r} has more than {_MAX_PATTERN} characters: shorten it"
                raise WorkspacePathError(message, "invalid")
            texts += _alternatives(pattern)
            if len(texts) > _MAX_PATTERNS:
                raise WorkspacePathError(f"the patterns stand for more than {_MAX_PATTERNS}: give fewer", "invalid")
        self._patterns = [_parsed(text, roots) for text in texts]

    @property
    def start(self) -> Position:
        """The position of the workspace itself."""
        return self._closed((number, 0) for number in range(len(self._patterns)))

    def enter(self, name: str, position: Position) -> Position:
        """The position of the folder ``name`` in a folder; empty if nothing below it can match."""
        return frozenset(at for at in self._step(name, position) if at[1] < len(self._patterns[at[0]]))

    def is_match(self, name: str, position: Position) -> bool:
        """Whether the file ``name`` in a folder matches."""
        return any(at == len(self._patterns[number]) for number, at in self._step(name, position))

    def _step(self, name: str, position: Position) -> Position:
        reached = set()
        for number, at in position:
            if at == len(self._patterns[number]):
                continue
            part = self._patterns[number][at]
            if part is _ANY_FOLDERS:
                reached.add((number, at))
            elif _matches(part, name):
                reached.add((number, at + 1))
        return self._closed(reached)

    def _closed(self, positions: Iterable[tuple[int, int]]) -> Position:
        """With what ``**`` adds by being no folder at all."""
        closed = set()
        for number, start in positions:
            at = start
            closed.add((number, at))
            while at < len(self._patterns[number]) and self._patterns[number][at] is _ANY_FOLDERS:
                at += 1
                closed.add((number, at))
        return frozenset(closed)


def _alternatives(pattern: str) -> Iterator[str]:
    """Yield a pattern for each choice in its braces."""
    waiting, count = [pattern], 0
    while waiting:
        text = waiting.pop()
        start, end, choices = _braces(text) or (0, 0, [])
        count += not choices
        if max(count, len(waiting) + len(choices)) > _MAX_PATTERNS:
            message = f"pattern {pattern[:80]!r} stands for more than {_MAX_PATTERNS}: split it"
            raise WorkspacePathError(message, "invalid")
        if not choices:
            yield text
        waiting += [text[:start] + choice + text[end:] for choice in reversed(choices)]


def _braces(text: str) -> tuple[int, int, list[str]] | None:
    """The first outermost ``{a,b}``: where it begins and ends, and its choices. None without one that is closed."""
    found: tuple[int, int, list[int]] | None = None
    # The position of each open brace, and the commas in it.
    opened: list[tuple[int, list[int]]] = []
    for index, char in enumerate(text):
        if char == "{":
            opened.append((index, []))
        elif char == "," and opened:
            opened[-1][1].append(index)
        elif char == "}" and opened:
            start, commas = opened.pop()
            # {a} is a name
            if commas and (found is None or start < found[0]):
                found = start, index, commas
    if found is None:
        return None
    start, end, commas = found
    return start, end + 1, [text[a + 1 : b] for a, b in zip([start, *commas], [*commas, end], strict=True)]


def _parsed(pattern: str, roots: Collection[str]) -> tuple[_Part | None, ...]:
    first = pattern.replace("\\", "/").removeprefix("./").partition("/")[0]
    wild = any(char in first for char in "*?[")
    # The rest of the rules for paths holds for patterns too; a wildcard in the first part is any of the folders.
    parts = parts_of(f"{next(iter(roots))}/{pattern.strip()}" if wild else pattern.strip(), roots)
    if wild:
        parts = parts[1:]
        heads = _ANY_FOLDERS if parts[0] == "**" else _tokens(parts[0])
        if heads is not None and not any(_matches(heads, root) for root in roots):
            raise WorkspacePathError(f"pattern {pattern!r} matches none of the folders {', '.join(roots)}", "invalid")
    return tuple(_ANY_FOLDERS if part == "**" else _tokens(part) for part in parts)


def _tokens(part: str) -> _Part:
    tokens: list[_One] = []
    index = 0
    while index < len(part):
        char = part[index]
        index += 1
        if char == "*":
            if tokens[-1:] != [_STAR]:
                tokens.append(_STAR)
        elif char == "?":
            tokens.append(_ANY)
        elif char == "[" and (end := part.find("]", index + 1 + (part[index : index + 1] in "!^"))) > 0:
            tokens.append(_set(part[index:end]))
            index = end + 1
        else:
            tokens.append(_One(frozenset(char), negated=False))
    return tuple(tokens)


def _set(text: str) -> _One:
    negated = text[:1] in ("!", "^")
    body = text[1:] if negated else text
    chars, ranges, index = set(), [], 0
    while index < len(body):
        if body[index + 1 : index + 2] == "-" and index + 2 < len(body):
            ranges.append((body[index], body[index + 2]))
            index += 3
        else:
            chars.add(body[index])
            index += 1
    return _One(frozenset(chars), tuple(ranges), negated)


def _matches(part: _Part, name: str) -> bool:
    """Whether a name matches; a star that took too little is the only thing that is ever reconsidered."""
    at = index = 0
    star = resume = -1
    while index < len(name):
        if at < len(part) and part[at] is _STAR:
            star, resume = at, index
            at += 1
        elif at < len(part) and part[at].matches(name[index]):
            at += 1
            index += 1
        elif star >= 0:
            resume += 1
            at, index = star + 1, resume
        else:
            return False
    return all(token is _STAR for token in part[at:])
