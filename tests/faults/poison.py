"""Orders that break the worker they run in, sent among the healthy ones, and what may come of them.

The agent does what the order's customer is called after. Nothing here is imported by the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from tests.faults.chaos import END, Kill

__all__ = ["KINDS", "is_poison", "losses", "mixed", "poisons", "problems"]

# Each kind, and a part of the error record that it ends in.
KINDS: Mapping[str, str] = {
    "cancelled": "cancel",
    "deep": "",
    "exit": "worker",
    "hang": "skills.turn.timeout",
    "stop": "worker",
    "swallow": "skills.turn.timeout",
    "state": "state",
    "raise": "RecursionError",
}

_GONE = re.compile(r"^(\S+ \S+) .*Agent worker \d+ of job ([0-9a-f]{32}) is gone: (.*)", re.MULTILINE)


def poisons(run: str, count: int) -> list[tuple[str, str]]:
    """Return ``count`` orders as id and customer, of each kind in turn. Each has a customer of its own."""
    kinds = sorted(KINDS)
    customers = [f"{run}-x{kinds[number % len(kinds)]}{number}" for number in range(count)]
    return [(f"{customer}-1", customer) for customer in customers]


def is_poison(order: str) -> bool:
    """Return whether the order, such as ``r1-xexit3-1``, breaks what runs it."""
    return order.split("-")[1].startswith("x")


def mixed(healthy: Sequence[tuple[str, str]], bad: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return all orders, with the bad ones at equal distances among the healthy ones."""
    found = list(healthy)
    for number, order in enumerate(bad):
        place = (number + 1) * len(healthy) // (len(bad) + 1)
        found.insert(place + number, order)
    return found


def losses(logs: Path, jobs: set[str]) -> list[Kill]:
    """Return the ends of agent workers that the logs of TaskManagers in the folder ``logs`` have."""
    found = []
    for file in sorted(logs.glob("taskmanager-*.log")):
        for match in _GONE.finditer(file.read_text(encoding="utf-8", errors="replace")):
            if match[2] in jobs:
                at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
                found.append(Kill(at, END, match[3][:80]))
    return sorted(found, key=lambda kill: kill.at)


def problems(sent: Iterable[str], failures: Sequence[Mapping[str, str]]) -> list[str]:
    """Return one line for each bad order that did not end in its error record, and each healthy one that did."""
    errors: dict[str, str] = {}
    for row in failures:
        errors.setdefault(row["id"], row["error"])
    lines = []
    for order in filter(is_poison, sent):
        error = errors.pop(order, None)
        kind = order.split("-")[1].lstrip("x").rstrip("0123456789")
        if error is None:
            lines.append(f"poison {order} has no error record")
        elif KINDS[kind] not in error:
            lines.append(f"poison {order} has the error record {error}, which does not name {KINDS[kind]!r}")
    return [*lines, *(f"error record: {order}: {error}" for order, error in errors.items())]
