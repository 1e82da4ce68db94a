"""Budgets: how often words that make sentences hard to read may occur."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from checks.prose.passages import File, Passage

__all__ = ["WORDS", "Budget", "count", "group_of", "read_budgets"]

WORDS = "words"
_WORD = re.compile(r"[a-z']+")
_MARKDOWN = frozenset({"prose", "row", "header", "heading"})
_CODE = frozenset({"function", "docstring", "comment"})


@dataclass(frozen=True)
class Budget:
    """An entry of ``budgets.yaml``. ``goal`` is a number per 10,000 words."""

    code: str
    name: str
    goal: int
    words: frozenset[str]
    pattern: re.Pattern[str] | None


def read_budgets(path: Path) -> dict[str, Budget]:
    """Return the budgets in ``path`` by their codes."""
    read: Mapping[str, Mapping[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {
        code: Budget(
            code,
            entry["name"],
            entry["goal"],
            frozenset(entry.get("words", ())),
            re.compile("|".join(entry["patterns"])) if "patterns" in entry else None,
        )
        for code, entry in read.items()
    }


def group_of(path: str, passage: Passage) -> str | None:
    """Return the group that ``passage`` is counted with: code, docs or none."""
    if passage.kind in _MARKDOWN:
        return "docs"
    return "code" if passage.kind in _CODE and path.startswith("flink_skills/") else None


def count(file: File, budgets: Mapping[str, Budget]) -> Counter[tuple[str, str]]:
    """Return the number of words by group, and of the words of each budget by group and code."""
    counts: Counter[tuple[str, str]] = Counter()
    for passage in file.passages:
        group = group_of(file.path, passage)
        if group is not None:
            words = Counter(_WORD.findall(passage.lower))
            counts[group, WORDS] += words.total()
            for budget in budgets.values():
                counts[group, budget.code] += sum(words[word] for word in budget.words)
                counts[group, budget.code] += sum(1 for _ in _matches(budget, passage))
    return counts


def _matches(budget: Budget, passage: Passage) -> Iterator[re.Match[str]]:
    return budget.pattern.finditer(passage.lower) if budget.pattern else iter(())
