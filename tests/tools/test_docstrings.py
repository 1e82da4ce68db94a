from __future__ import annotations

import pytest

from flink_skills.tools.dynamic import parse_docstring, parse_returns


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


@pytest.mark.row("J33")
@pytest.mark.parametrize(
    ("text", "returns"),
    [
        (None, ""),
        ("Add.", ""),
        ("Add.\n\nReturns:\n    The\n    sum.\n\nRaises:\n    ValueError: never", "The sum."),
        ("Add.\n\nReturn:\n    The sum.\nMore text.", "The sum."),
        ("Add.\n\nArgs:\n    a: One.\n\nReturns:\n    dict: With keys\n        a and b.", "dict: With keys a and b."),
        ("Add.\n\nReturns\n-------\nint\n    The sum.\n\nNotes\n-----\nNone.", "int The sum."),
        ("Add.\n\n:param a: One.\n:returns: The\n    sum.\n:rtype: int", "The sum."),
    ],
)
def test_what_it_says_of_the_result(text: str | None, returns: str) -> None:
    assert parse_returns(text) == returns
