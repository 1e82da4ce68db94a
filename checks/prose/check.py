"""Check of all files against the rules, the budgets and the baseline."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from checks.prose.baseline import Excess, Zero, read_baseline, read_zeros, write_baseline
from checks.prose.budgets import Budget, count, read_budgets
from checks.prose.changes import added_lines, subjects
from checks.prose.files import prose_files, read_file
from checks.prose.passages import File, Passage
from checks.prose.rules import Hit, Rule, find_hits, read_rules

__all__ = ["BASELINE", "BUDGETS", "RULES", "ZEROS", "Report", "check", "check_commits", "measure"]

FOLDER = "checks/prose"
RULES, BUDGETS, ZEROS, BASELINE = (f"{FOLDER}/{name}.yaml" for name in ("rules", "budgets", "zero", "baseline"))
#: If nothing is known about the lines that are new, this many hits are listed.
MAX_LISTED = 20


@dataclass(frozen=True)
class Report:
    """Hits, messages about exceptions, and numbers of words."""

    hits: Sequence[Hit]
    messages: Sequence[str]
    counts: Mapping[tuple[str, str], int]


def measure(root: Path, rules: Mapping[str, Rule], budgets: Mapping[str, Budget]) -> Report:
    """Read all files below ``root``, with one process for each CPU."""
    hits: list[Hit] = []
    messages: list[str] = []
    counts: Counter[tuple[str, str]] = Counter()
    with ProcessPoolExecutor(os.cpu_count(), initializer=gc.disable) as pool:
        paths = prose_files(root)
        for report in pool.map(partial(_measure_file, root, rules, budgets), paths, chunksize=16):
            hits += report.hits
            messages += report.messages
            counts.update(report.counts)
    return Report(hits, messages, counts)


def _measure_file(root: Path, rules: Mapping[str, Rule], budgets: Mapping[str, Budget], path: str) -> Report:
    file = read_file(root, path)
    hits, messages = find_hits(file, rules)
    return Report(hits, messages, count(file, budgets))


def check(root: Path) -> list[str]:
    """Return the messages about faults. If there are none, lower the baseline to today's numbers."""
    rules, budgets = read_rules(root / RULES), read_budgets(root / BUDGETS)
    report = measure(root, rules, budgets)
    baseline = read_baseline(root / BASELINE)
    zeros = read_zeros(root / ZEROS)
    messages = list(report.messages)
    messages += [_zero(hit, rules) for hit in report.hits if _is_forbidden(hit, zeros)]
    counted = [hit for hit in report.hits if not _is_forbidden(hit, zeros)]
    excesses = list(baseline.excesses(counted))
    if excesses:
        added = added_lines(root, BASELINE) or {}
        messages += [_too_many(excess, rules[excess.rule], added) for excess in excesses]
    messages += baseline.overruns(report.counts, budgets)
    lowered = baseline.lowered(counted, report.counts, budgets)
    if not messages and lowered != baseline:
        write_baseline(root / BASELINE, lowered)
        print(f"There are fewer hits than before: {BASELINE} is lowered. Commit it with the change.")
    return messages


def _is_forbidden(hit: Hit, zeros: Sequence[Zero]) -> bool:
    return any(zero.forbids(hit) for zero in zeros)


def _zero(hit: Hit, rules: Mapping[str, Rule]) -> str:
    rule = rules[hit.rule]
    return f"{rule.code} failed: {rule.name} ({hit.path}:{hit.line}). {rule.advice}\n    {hit.excerpt}"


def _too_many(excess: Excess, rule: Rule, added: Mapping[str, Set[int]]) -> str:
    new = [hit for hit in excess.hits if hit.line in added.get(hit.path, ())]
    listed = new or excess.hits[:MAX_LISTED]
    what = "New ones" if new else "Some of them"
    return (
        f"{rule.code} failed: {rule.name}: {excess.package} has {len(excess.hits)} hits, and its ceiling is "
        f"{excess.ceiling} ({BASELINE}). {rule.advice}\n  {what}:\n" + "\n".join(f"    {hit}" for hit in listed)
    )


def check_commits(root: Path, revision: str) -> list[str]:
    """Return a message for each hit in the subjects of the commits since ``revision``."""
    rules = read_rules(root / RULES)
    messages = []
    for subject in subjects(root, revision):
        for hit in find_hits(File("commit", (Passage("commit", 1, 1, subject),)), rules)[0]:
            rule = rules[hit.rule]
            messages.append(f"{rule.code} failed: {rule.name}: {subject!r}. {rule.advice}")
    return messages
