"""Rules about files as text: size, lint exceptions, codes and banners."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from checks.findings import Finding

__all__ = ["CHECKED", "banners", "codes", "lint_exceptions", "sizes", "source_files"]

MAX_LINES = 500
#: If more files than this switch a rule of the linter off by line, the exception holds for the project.
MAX_FILES_WITHOUT_RULE = 10
PRODUCT = ("flink_skills", "java-bridge/src/main")
CHECKED = (*PRODUCT, "java-bridge/src/test", "tests", "checks", "docs", "benchmarks", "deploy", "examples", "skills")

_WHOLE_FILE = re.compile(r"^\s*#\s*(?:ruff|flake8)\s*:\s*noqa|^\s*#\s*mypy:\s*ignore-errors", re.IGNORECASE)
_LINE = re.compile(r"#\s*noqa\b(?P<rules>:\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)?", re.IGNORECASE)
_CODE = re.compile(r"\brows? [A-Z]\d+\b|\bfeature rows?\b|\([A-Z]\d{1,2}(?:, [A-Z]\d{1,2})*\)", re.IGNORECASE)
_BANNER = re.compile(r"^\s*(?:#|//)\s*(?:[-=*#]{2,}\s*\S.*[-=*#]{4,}|[-=*#]{10,})\s*$")


def source_files(root: Path, folders: Iterable[str] = CHECKED) -> Iterator[Path]:
    """Yield the Python and Java files in ``folders`` below ``root``."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".java"):
                yield path


def sizes(root: Path) -> list[Finding]:
    """Return the files of more than 500 lines."""
    found = []
    for path in source_files(root):
        place, lines = path.relative_to(root).as_posix(), len(_lines(path))
        if lines > MAX_LINES:
            message = (
                f"sizes failed: a file has at most {MAX_LINES} lines or its ceiling in the list, and this one has "
                f"{lines} ({place}). Split it by what it does."
            )
            found.append(Finding("sizes", place, message, lines))
    return found


def lint_exceptions(root: Path) -> list[Finding]:
    """Return the lint exceptions of whole files, and the rules that many files switch off by line."""
    found = []
    by_rule: defaultdict[str, list[str]] = defaultdict(list)
    for path in source_files(root):
        if path.suffix != ".py":
            continue
        place = path.relative_to(root).as_posix()
        rules: set[str] = set()
        for number, line in enumerate(_lines(path), 1):
            if _WHOLE_FILE.search(line):
                found.append(_exception(place, f"a file cannot switch rules off for itself ({place}:{number})"))
            elif match := _LINE.search(line):
                if match["rules"] is None:
                    found.append(_exception(place, f"an exception without a rule switches all off ({place}:{number})"))
                rules.update(re.findall(r"[A-Z]+[0-9]+", match["rules"] or ""))
        for rule in rules:
            by_rule[rule].append(place)
    for rule, places in sorted(by_rule.items()):
        if len(places) > MAX_FILES_WITHOUT_RULE:
            found.append(_exception(rule, f"{len(places)} files switch {rule} off by line ({', '.join(places)})"))
    return found


def _exception(key: str, reason: str) -> Finding:
    fix = "List the exception once in pyproject.toml with the reason, or name the rule on the line."
    return Finding("lint-exceptions", key, f"lint-exceptions failed: {reason}. {fix}")


def codes(root: Path) -> list[Finding]:
    """Return the codes of feature rows in product code."""
    return [
        Finding(
            "codes", place, f"codes failed: a comment needs the list of features ({place}). Write what it stands for."
        )
        for place in _matches(root, PRODUCT, _CODE)
    ]


def banners(root: Path) -> list[Finding]:
    """Return the section banners."""
    return [
        Finding("banners", place, f"banners failed: a banner divides a file ({place}). Remove it, or split the file.")
        for place in _matches(root, CHECKED, _BANNER)
    ]


def _matches(root: Path, folders: Iterable[str], pattern: re.Pattern[str]) -> Iterator[str]:
    for path in source_files(root, folders):
        for number, line in enumerate(_lines(path), 1):
            if pattern.search(line):
                yield f"{path.relative_to(root).as_posix()}:{number}"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
