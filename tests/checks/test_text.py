"""Size, lint exceptions, codes and banners."""

from __future__ import annotations

import pytest

from checks.text import MAX_FILES_WITHOUT_RULE, banners, codes, lint_exceptions, sizes
from tests.checks.conftest import WriteTree

# In two parts, so that this file passes the rules itself.
NOQA = "# no" + "qa"


def test_a_file_has_at_most_500_lines(write_tree: WriteTree) -> None:
    root = write_tree({"tests/short.py": "#\n" * 500, "java-bridge/src/main/Long.java": "//\n" * 501})

    assert [(found.key, found.size) for found in sizes(root)] == [("java-bridge/src/main/Long.java", 501)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"# ruff: {NOQA[2:]}: S101", "a file cannot switch rules off for itself (tests/a.py:1)"),
        (f"x = 1  {NOQA}", "an exception without a rule switches all off (tests/a.py:1)"),
        (f"x = 1  {NOQA}: S101 - the reason", ""),
    ],
    ids=["file", "all rules", "one rule"],
)
def test_lint_exceptions_of_a_file(write_tree: WriteTree, line: str, reason: str) -> None:
    found = [finding.message for finding in lint_exceptions(write_tree({"tests/a.py": f"{line}\n"}))]

    assert len(found) == bool(reason)
    assert all(f"lint-exceptions failed: {reason}." in message for message in found)


@pytest.mark.parametrize("more", [0, 1], ids=["few files", "many files"])
def test_a_rule_that_many_files_switch_off_belongs_into_the_project(write_tree: WriteTree, more: int) -> None:
    names = [f"docs/m{number}.py" for number in range(MAX_FILES_WITHOUT_RULE + more)]

    found = lint_exceptions(write_tree(dict.fromkeys(names, f"x = 1  {NOQA}: E501, S101\n" * 2)))

    assert [finding.key for finding in found] == ["E501", "S101"][: 2 * more]


@pytest.mark.parametrize(
    ("name", "text", "places"),
    [
        ("flink_skills/a.py", '"""Starts it (row F22)."""', ["flink_skills/a.py:1"]),
        ("flink_skills/a.py", "# Rows G1 to G3: one\n\n# (B12)", ["flink_skills/a.py:1", "flink_skills/a.py:3"]),
        ("java-bridge/src/main/A.java", "// feature row A1", ["java-bridge/src/main/A.java:1"]),
        ("flink_skills/a.py", "# Rows of the table, diagnostic F07 and f(A1B)", []),
        ("tests/test_a.py", '"""Row F22."""', []),
    ],
)
def test_codes_of_feature_rows_are_not_in_product_code(
    write_tree: WriteTree, name: str, text: str, places: list[str]
) -> None:
    assert [finding.key for finding in codes(write_tree({name: text}))] == places


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("x = 1\n    # -- parts " + "-" * 20, ["tests/a.py:2"]),
        ("# " + "=" * 20, ["tests/a.py:1"]),
        ("# --verbose is an option", []),
        ("x = 1 - -1  # a -- b", []),
    ],
    ids=["title", "line", "option", "dashes"],
)
def test_banners(write_tree: WriteTree, text: str, places: list[str]) -> None:
    assert [finding.key for finding in banners(write_tree({"tests/a.py": text}))] == places
