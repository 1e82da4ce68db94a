"""Rules about prose, and the places that break them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from checks.prose.passages import File, Passage

__all__ = ["Hit", "Rule", "find_hits", "read_rules"]

KINDS = ("function", "docstring", "comment", "message", "prose", "row", "header", "heading")


@dataclass(frozen=True)
class Rule:
    """A rule of ``rules.yaml``."""

    code: str
    name: str
    advice: str
    pattern: re.Pattern[str]
    kinds: Sequence[str]
    paths: Sequence[str]
    case: bool
    first_line: bool

    def matches(self, passage: Passage) -> Iterator[re.Match[str]]:
        """Yield the matches in ``passage``: at most one if only the first line counts."""
        if not self.first_line:
            yield from self.pattern.finditer(passage.flat if self.case else passage.lower)
        elif match := self.pattern.search(passage.clean.partition("\n")[0]):
            yield match


@dataclass(frozen=True)
class Hit:
    """A place in the file ``path`` that breaks the rule with the code ``rule``."""

    rule: str
    path: str
    line: int
    kind: str
    excerpt: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.excerpt}"


def read_rules(path: Path) -> dict[str, Rule]:
    """Return the rules in ``path`` by their codes."""
    read: Mapping[str, Mapping[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {
        code: Rule(
            code,
            entry["name"],
            entry["advice"],
            re.compile("|".join(entry["patterns"])),
            entry.get("kinds", KINDS),
            entry.get("paths", ()),
            entry.get("case", False),
            entry.get("first-line", False),
        )
        for code, entry in read.items()
    }


def find_hits(file: File, rules: Mapping[str, Rule]) -> tuple[list[Hit], list[str]]:
    """Return the hits in ``file`` that no comment allows, and the messages about comments that allow no hit."""
    ours = [rule for rule in rules.values() if not rule.paths or _is_in(file.path, rule.paths)]
    by_kind = {
        kind: [rule for rule in ours if kind in rule.kinds] for kind in {passage.kind for passage in file.passages}
    }
    hits = []
    unused = {(allowance.line, rule) for allowance in file.allowances for rule in allowance.rules}
    for passage in file.passages:
        covering = [allowance for allowance in file.allowances if allowance.covers(passage)]
        for rule in by_kind[passage.kind]:
            allowed = {(found.line, rule.code) for found in covering if rule.code in found.rules}
            for match in rule.matches(passage):
                unused -= allowed
                if not allowed:
                    excerpt = _excerpt(passage.flat, match)
                    hits.append(Hit(rule.code, file.path, passage.line_of(match.start()), passage.kind, excerpt))
    messages = [_allow(file, line, f"{rule} has no hit there", "Remove it") for line, rule in sorted(unused)]
    messages += [
        _allow(file, allowance.line, "it needs rules and a reason", "Write prose: allow B07: REASON")
        for allowance in file.allowances
        if not allowance.rules
    ]
    return hits, messages


def _allow(file: File, line: int, reason: str, fix: str) -> str:
    return f"prose failed: an exception is not valid: {reason} ({file.path}:{line}). {fix}."


def _is_in(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _excerpt(text: str, match: re.Match[str]) -> str:
    """Return some words around ``match``."""
    start, end = max(match.start() - 40, 0), match.end() + 50
    words = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{words}{'…' if end < len(text) else ''}"
