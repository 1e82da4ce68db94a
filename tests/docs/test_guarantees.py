"""``docs/guarantees.md``: each guarantee names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "docs/guarantees.md"
JAVA = ROOT / "java-bridge/src/test"

ROWS = re.findall(r"^\| (?!guarantee|---)(.+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def python_tests_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def java_tests_of(name: str) -> set[str]:
    (path,) = JAVA.rglob(f"{name}.java")
    test = re.compile(r"@(?:Test|ParameterizedTest)\b[^{;]*?void (\w+)\(", re.DOTALL)
    return set(test.findall(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("guarantee", "shown"), ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_its_tests_exist(guarantee: str, shown: str) -> None:
    named = re.findall(r"`([^`]+)`", shown)
    assert named or re.search(r"\]\(security\.md#", shown), f"{guarantee}: no test"
    for name in named:
        if "::" in name:
            file, _, test = name.partition("::")
            assert (ROOT / "tests" / file).is_file(), f"{guarantee}: there is no tests/{file}"
            assert test in python_tests_of(ROOT / "tests" / file), f"{guarantee}: there is no {name}"
        else:
            file, _, test = name.partition("#")
            assert test in java_tests_of(file), f"{guarantee}: there is no {name}"


def test_there_are_guarantees() -> None:
    assert len(ROWS) > 30
