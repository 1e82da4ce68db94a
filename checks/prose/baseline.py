"""Baseline: the hits of each rule by package, and the rates of the budgets. It may only fall."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from checks.prose.budgets import WORDS, Budget
from checks.prose.files import package_of
from checks.prose.rules import Hit

__all__ = ["Baseline", "Excess", "Zero", "read_baseline", "read_zeros", "write_baseline"]

#: Factor by which a rate can exceed the lowest measured one.
MARGIN = 1.05
_HEADER = """\
# Hits of each rule by package, and rates per 10,000 words. They may only fall: `python -m checks.prose` lowers them and
# fails if there are more. After a move between packages, move the number manually.
"""


@dataclass(frozen=True)
class Zero:
    """An entry of ``zero.yaml``: passages without any hit of some rules, whatever the baseline has."""

    paths: Sequence[str]
    kinds: Sequence[str]
    rules: Sequence[str]

    def forbids(self, hit: Hit) -> bool:
        """Return True if ``hit`` is in these passages and breaks one of these rules."""
        return (
            any(fnmatchcase(hit.path, path) for path in self.paths)
            and (not self.kinds or hit.kind in self.kinds)
            and hit.rule.startswith(tuple(self.rules))
        )


def read_zeros(path: Path) -> list[Zero]:
    """Return the entries in ``path``."""
    read: Sequence[Mapping[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [Zero(entry["paths"], entry.get("kinds", ()), entry["rules"]) for entry in read]


@dataclass(frozen=True)
class Excess:
    """More hits of ``rule`` in ``package`` than the baseline has."""

    rule: str
    package: str
    hits: Sequence[Hit]
    ceiling: int


@dataclass(frozen=True)
class Baseline:
    """Numbers of hits by rule and package, and rates by group and budget."""

    hits: Mapping[str, Mapping[str, int]]
    budgets: Mapping[str, Mapping[str, int]]

    def excesses(self, hits: Sequence[Hit]) -> Iterator[Excess]:
        """Yield the rules with more hits in a package than this baseline has."""
        for (rule, package), number in sorted(_numbers(hits).items()):
            ceiling = self.hits.get(rule, {}).get(package, 0)
            if number > ceiling:
                found = [hit for hit in hits if hit.rule == rule and package_of(hit.path) == package]
                yield Excess(rule, package, found, ceiling)

    def overruns(self, counts: Mapping[tuple[str, str], int], budgets: Mapping[str, Budget]) -> Iterator[str]:
        """Yield a message for each budget with a higher rate in ``counts`` than this baseline has."""
        for group, code, rate in _rates(counts, budgets):
            ceiling = max(self.budgets.get(group, {}).get(code, 0), budgets[code].goal)
            if rate > ceiling:
                yield (
                    f"{code} failed: {rate:.1f} per 10,000 words of {group} are among {budgets[code].name!r}, and the "
                    f"ceiling is {ceiling}. Write nouns and technical verbs in their place."
                )

    def lowered(
        self, hits: Sequence[Hit], counts: Mapping[tuple[str, str], int], budgets: Mapping[str, Budget]
    ) -> Baseline:
        """Return the lower of these numbers and those of ``hits`` and ``counts``.

        A rate keeps a margin, because a shorter text can have a higher one. At its goal it is omitted.
        """
        numbers = _numbers(hits)
        lower: dict[str, dict[str, int]] = {}
        for rule, packages in self.hits.items():
            fewer = {package: min(number, numbers[rule, package]) for package, number in packages.items()}
            lower[rule] = {package: number for package, number in fewer.items() if number}
        rates: dict[str, dict[str, int]] = {}
        for group, code, rate in _rates(counts, budgets):
            ceiling = min(self.budgets.get(group, {}).get(code, 0), math.ceil(rate * MARGIN))
            if ceiling > budgets[code].goal:
                rates.setdefault(group, {})[code] = ceiling
        return Baseline({rule: packages for rule, packages in lower.items() if packages}, rates)


def _numbers(hits: Sequence[Hit]) -> Counter[tuple[str, str]]:
    return Counter((hit.rule, package_of(hit.path)) for hit in hits)


def _rates(counts: Mapping[tuple[str, str], int], budgets: Mapping[str, Budget]) -> Iterator[tuple[str, str, float]]:
    """Yield the group, code and rate per 10,000 words of each budget."""
    for (group, code), number in sorted(counts.items()):
        if code in budgets:
            yield group, code, number / max(counts[group, WORDS], 1) * 10_000


def read_baseline(path: Path) -> Baseline:
    """Return the baseline in ``path``."""
    read: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return Baseline(read.get("hits", {}), read.get("budgets", {}))


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write ``baseline`` to ``path``, with one number on each line so that branches merge."""
    entries = {"hits": _plain(baseline.hits), "budgets": _plain(baseline.budgets)}
    path.write_text(_HEADER + yaml.safe_dump(entries, default_flow_style=False), encoding="utf-8")


def _plain(numbers: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {key: dict(inner) for key, inner in numbers.items()}
