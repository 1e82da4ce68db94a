from __future__ import annotations

import pytest

from flink_skills.tools.dynamic.program.docstrings import parse_docstring


@pytest.mark.row("J33")
@pytest.mark.parametrize(
    ("text", "summary", "arguments"),
    [
        (None, "", {}),
        ("", "", {}),
        ("One line.", "One line.", {}),
        ("Two\nlines.\n\nMore text.", "Two lines.", {}),
        ("Add.\nArgs:\n    a: One.", "Add.", {"a": "One."}),
        (
            "Add.\n\nArgs:\n    a: One.\n    b (int, optional): Two\n        lines.\n",
            "Add.",
            {"a": "One.", "b": "Two lines."},
        ),
        (
            "Add.\n\nArgs:\n    a: see\n        note: this is no argument\n",
            "Add.",
            {"a": "see note: this is no argument"},
        ),
        ("Add.\n\nArgs:\n    a: One.\n\nReturns:\n    b: not an argument", "Add.", {"a": "One."}),
        ("Add.\n\nArgs:\n    a: One.\nSomething else: yes", "Add.", {"a": "One."}),
        ("Add.\n\nArgs:\n    **more: Others.", "Add.", {"more": "Others."}),
    ],
)
def test_parse(text: str | None, summary: str, arguments: dict[str, str]) -> None:
    assert parse_docstring(text) == (summary, arguments)
