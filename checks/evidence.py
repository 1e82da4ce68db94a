"""Evidence of feature rows and guarantees, compared between a revision and the working tree.

    python -m checks.evidence REV

Print the number of tests behind each feature row and each guarantee at ``REV`` and now. Exit with 1 if a row is missing
now, or if a row had tests at ``REV`` and has none now. The script reads files only and runs no test.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
_GUARANTEE = re.compile(r"^\| (?!guarantee|---|Guarantee)(.+) \| (.+) \|$", re.MULTILINE)
_JAVA_TEST = re.compile(r"@(?:Test|ParameterizedTest)\b[^{;]*?void (\w+)\(", re.DOTALL)

Evidence = Mapping[str, set[str]]


def feature_evidence(root: Path) -> dict[str, set[str]]:
    """Return the tests that are marked with each feature row of the checkout ``root``."""
    sections = yaml.safe_load((root / "docs/features/rows.yaml").read_text(encoding="utf-8"))
    evidence: dict[str, set[str]] = {row: set() for rows in sections.values() for row in rows}
    for path in sorted((root / "tests").rglob("*.py")):
        for row, test in marked_tests(ast.parse(path.read_text(encoding="utf-8"))):
            evidence.setdefault(row, set()).add(f"{path.relative_to(root / 'tests')}::{test}")
    return evidence


def marked_tests(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each feature row that a module marks, with the name of each test to which the mark applies.

    A mark on a test or on one of its parameters applies to that test. Any other mark applies to all tests of its class
    or module.
    """

    def visit(node: ast.AST, scope: ast.AST) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.row":
            tests = [scope.name] if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else list(_tests(scope))
            for argument in node.args:
                yield from ((ast.literal_eval(argument), test) for test in tests)
        inner = node if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else scope
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inner)

    return visit(module, module)


def _tests(scope: ast.AST) -> Iterator[str]:
    for node in ast.walk(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield node.name


def guarantee_evidence(root: Path) -> dict[str, set[str]]:
    """Return the tests that ``docs/guarantees.md`` names for each guarantee and that exist in the checkout ``root``.

    A link to another page with tests of its own counts as evidence.
    """
    page = (root / "docs/guarantees.md").read_text(encoding="utf-8")
    evidence: dict[str, set[str]] = {}
    for guarantee, cell in _GUARANTEE.findall(page):
        names = {name for name in re.findall(r"`([^`]+)`", cell) if _exists(root, name)}
        evidence[guarantee] = names | set(re.findall(r"\]\(([^)]+)\)", cell))
    return evidence


def _exists(root: Path, name: str) -> bool:
    file, _, test = name.partition("::")
    if test:
        path = root / "tests" / file
        return path.is_file() and test in set(_tests(ast.parse(path.read_text(encoding="utf-8"))))
    file, _, test = name.partition("#")
    paths = list((root / "java-bridge/src/test").rglob(f"{file}.java"))
    return any(test in _JAVA_TEST.findall(path.read_text(encoding="utf-8")) for path in paths)


def compare(before: Evidence, after: Evidence) -> list[str]:
    """Return one line for each row that lost its evidence."""
    problems = [
        f"row {row!r} is missing (it had {len(tests)} tests)" for row, tests in before.items() if row not in after
    ]
    problems += [
        f"row {row!r} has no test now (before: {', '.join(sorted(before[row]))})"
        for row in before
        if before[row] and row in after and not after[row]
    ]
    return problems


def _checkout(revision: str, folder: Path) -> Path:
    command = ["git", "archive", revision, "docs", "tests", "java-bridge/src/test"]
    archive = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def _summary(name: str, evidence: Evidence) -> str:
    folders: dict[str, set[str]] = defaultdict(set)
    for row, tests in evidence.items():
        for test in tests:
            folders[row].add(test.partition("/")[0])
    proved = sum(bool(tests) for tests in evidence.values())
    tests = set().union(*evidence.values())
    spread = sum(len(found) >= 3 for found in folders.values())
    return f"{name}: {len(evidence)} rows, {proved} with tests, {len(tests)} tests, {spread} rows in 3 or more folders"


def main(arguments: list[str]) -> int:
    """Print both sides and the differences. Return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write(__doc__ or "")
        return 2
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        old = _checkout(arguments[0], Path(folder))
        for name, read in (("features", feature_evidence), ("guarantees", guarantee_evidence)):
            before, after = read(old), read(ROOT)
            sys.stdout.write(f"{arguments[0]}: {_summary(name, before)}\nnow: {_summary(name, after)}\n")
            problems += [f"{name}: {problem}" for problem in compare(before, after)]
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
