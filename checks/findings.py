"""Findings of a check, and the list of the known ones, which may only shrink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = ["LIST", "Finding", "Known", "read_known", "unexpected"]

LIST = "checks/structure.yaml"


@dataclass(frozen=True)
class Finding:
    """A violation of a rule.

    ``key`` identifies the finding in the list. ``size`` is the measured number of a rule with a limit, otherwise 0.
    """

    rule: str
    key: str
    message: str
    size: int = 0


@dataclass(frozen=True)
class Known:
    """Known findings of one rule: the ceiling of each key. A rule without numbers has 0 as its ceiling."""

    ceilings: Mapping[str, int]
    exact: bool = False
    """Whether a number below its ceiling is a finding, so that the ceiling cannot be reached again."""


def read_known(path: Path) -> dict[str, Known]:
    """Return the list in ``path`` by rule.

    A rule is a list of keys, a mapping of keys to numbers, or one number that has to be exact.
    """
    read: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return {rule: _known(rule, entry) for rule, entry in read.items()}


def _known(rule: str, entry: Any) -> Known:
    if isinstance(entry, int):
        return Known({rule: entry}, exact=True)
    if isinstance(entry, Mapping):
        return Known({str(key): int(size) for key, size in entry.items()})
    return Known(dict.fromkeys((" ".join(item) if isinstance(item, list) else str(item) for item in entry or ()), 0))


def unexpected(findings: Sequence[Finding], known: Mapping[str, Known]) -> list[str]:
    """Return a message for each finding that is not in the list, and for each entry of the list without a finding."""
    messages = []
    shrunk: set[tuple[str, str]] = set()
    for finding in findings:
        ceilings = known.get(finding.rule, Known({})).ceilings
        larger = next((key for key in ceilings if set(finding.key.split()) < set(key.split())), None)
        if larger is not None:
            shrunk.add((finding.rule, larger))
            messages.append(
                f"{finding.rule} failed: a cycle of {len(larger.split())} has shrunk ({LIST}). Replace its entry by "
                f"{finding.key}."
            )
        elif finding.key not in ceilings or finding.size > ceilings[finding.key]:
            messages.append(finding.message)
    sizes = {(finding.rule, finding.key): finding.size for finding in findings}
    for rule, entries in known.items():
        for key, ceiling in entries.ceilings.items():
            size = sizes.get((rule, key))
            if size is None and (rule, key) not in shrunk:
                messages.append(f"{rule} failed: {key} is not a violation any more ({LIST}). Remove it from the list.")
            elif size is not None and entries.exact and size < ceiling:
                messages.append(f"{rule} failed: the number fell to {size} ({LIST}). Lower the ceiling from {ceiling}.")
    return messages
