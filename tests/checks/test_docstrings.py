"""Exceptions from the linter's rules for docstrings."""

from __future__ import annotations

from checks.docstrings import obsolete_exceptions
from tests.checks.conftest import WriteTree

SETTINGS = """
[tool.ruff.lint.per-file-ignores]
"p/used/*" = ["D401", "S101"]
"p/clean/*" = ["D205", "D401"]
"p/tests/*" = ["D"]

[tool.other]
"p/gone/*" = ["D401"]
"""
IMPERATIVE, NOUN = 'def f():\n    """Return the name."""\n', 'def f():\n    """Returns the name."""\n'


def test_exception_without_a_violation_is_obsolete(write_tree: WriteTree) -> None:
    root = write_tree({"pyproject.toml": SETTINGS, "p/used/sub/a.py": NOUN, "p/clean/b.py": IMPERATIVE})

    found = obsolete_exceptions(root)

    assert [finding.key for finding in found] == ["p/clean/* D205", "p/clean/* D401"]
    assert found[0].message.startswith(
        "docstring-exceptions failed: no docstring in p/clean/* breaks D205 (pyproject.toml"
    )
