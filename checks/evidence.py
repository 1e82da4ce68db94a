"""Evidence of feature rows and guarantees, compared between a revision and the working tree.

    python -m checks.evidence REV

Print the number of tests behind the feature rows and the guarantees at ``REV`` and now. Exit with 1 if a row is missing
now, or if it had tests at ``REV`` and has none now. The script reads files and runs no test.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from docs.gen_features import marked_tests, read_rows

__all__ = ["compare", "feature_evidence", "guarantee_evidence", "guarantees", "missing_tests"]

ROOT = Path(__file__).resolve().parents[1]
_ROW = re.compile(r"^\| (?!guarantee|---)(.+) \| (.+) \|$", re.MULTILINE)
_JAVA_TEST = re.compile(r"@(?:Test|ParameterizedTest)\b[^;]*?void (\w+)\(", re.DOTALL)

Evidence = Mapping[str, set[str]]


def feature_evidence(root: Path) -> dict[str, set[str]]:
    """Return the tests that are marked with each feature row of the checkout ``root``."""
    rows = read_rows(root / "docs/features/rows.yaml")
    evidence: dict[str, set[str]] = {row.id: set() for section in rows.values() for row in section}
    for marked in marked_tests(root / "tests"):
        for row in marked.rows:
            evidence.setdefault(row, set()).add(marked.test)
    return evidence


def guarantees(root: Path) -> dict[str, str]:
    """Return the cell with the evidence of each guarantee in ``docs/guarantees.md``."""
    return dict(_ROW.findall((root / "docs/guarantees.md").read_text(encoding="utf-8")))


def guarantee_evidence(root: Path) -> dict[str, set[str]]:
    """Return the existing tests of each guarantee, and the pages with tests to which its row links."""
    return {
        guarantee: (_named(cell) - missing_tests(root, cell)) | set(re.findall(r"\]\(([^)]+)\)", cell))
        for guarantee, cell in guarantees(root).items()
    }


def missing_tests(root: Path, cell: str) -> set[str]:
    """Return the tests that a row of guarantees names and that the checkout ``root`` does not have."""
    return {name for name in _named(cell) if not _exists(root, name)}


def _named(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def _exists(root: Path, name: str) -> bool:
    file, is_python, test = name.partition("::")
    if is_python:
        path = root / "tests" / file
        return path.is_file() and test in _functions(path)
    file, _, test = name.partition("#")
    paths = (root / "java-bridge/src/test").rglob(f"{file}.java")
    return any(test in _JAVA_TEST.findall(path.read_text(encoding="utf-8")) for path in paths)


def _functions(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def compare(before: Evidence, after: Evidence) -> list[str]:
    """Return one message for each row that is missing or lost all its tests."""
    messages = []
    for row, tests in before.items():
        if row not in after:
            messages.append(f"row {row!r} is missing. It had {len(tests)} tests.")
        elif tests and not after[row]:
            messages.append(f"row {row!r} has no test. Before, it had: {', '.join(sorted(tests))}")
    return messages


def _checkout(revision: str, folder: Path) -> Path:
    command = ["git", "archive", revision, "docs", "tests", "java-bridge/src/test"]
    archive = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def _summary(evidence: Evidence) -> str:
    with_tests = sum(bool(tests) for tests in evidence.values())
    folders = [{test.removeprefix("tests/").partition("/")[0] for test in tests} for tests in evidence.values()]
    spread = sum(len(found) >= 3 for found in folders)
    tests = len(set().union(*evidence.values()))
    return (
        f"{len(evidence)} rows, {with_tests} with tests, {tests} tests, {spread} rows with tests in 3 or more folders"
    )


def main(arguments: list[str]) -> int:
    """Print both sides and their differences, and return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write(__doc__ or "")
        return 2
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        old = _checkout(arguments[0], Path(folder))
        for name, read in (("features", feature_evidence), ("guarantees", guarantee_evidence)):
            before, after = read(old), read(ROOT)
            print(f"{name} at {arguments[0]}: {_summary(before)}")
            print(f"{name} now: {_summary(after)}")
            problems += [f"{name}: {problem}" for problem in compare(before, after)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
