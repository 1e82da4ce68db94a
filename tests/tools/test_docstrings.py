from __future__ import annotations

import pytest

from flink_skills import FunctionTool
from flink_skills.tools import parse_docstring, parse_returns, read_docstring


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


def rate(text: str, language: str = "de") -> dict[str, float]:
    """Rate the mood
    of a message.

    German and English are
    understood. Other languages:

    - have a lower confidence
    - cost more

    Args:
        text: The text.
        language: ``de`` or ``en``.

    Returns:
        The mood, with
        - mood: from -1 to 1

    Raises:
        ValueError: The text is empty.

    Example:
        rate("Schön!") returns

        {"mood": 0.9}

    Note: sarcasm is not recognized.
    """
    return {}


@pytest.mark.row("J1", "J33")
def test_a_model_reads_the_whole_docstring_but_for_arguments_and_errors() -> None:
    spec = FunctionTool(rate).spec
    assert spec.description == (
        "Rate the mood of a message.\n\nGerman and English are understood. Other languages:\n\n"
        "- have a lower confidence\n- cost more\n\nReturns: The mood, with - mood: from -1 to 1\n\n"
        'Example:\n    rate("Schön!") returns\n\n    {"mood": 0.9}\n\nNote: sarcasm is not recognized.'
    )
    assert spec.parameters["properties"]["text"]["description"] == "The text."


@pytest.mark.row("J33")
@pytest.mark.parametrize(
    ("text", "description"),
    [
        (
            "Add.\n\nMore.\n\nParameters\n----------\na : int\n    One.\n\nExamples\n--------\n>>> add(1)\n1\n",
            "Add.\n\nMore.\n\nExamples:\n>>> add(1)\n1",
        ),
        ("Add.\n\n:param a: One.\n:returns: The sum.\n\nAfter.", "Add.\n\nReturns: The sum.\n\nAfter."),
        ("Add.\n\nArgs:\n    a: One.\nSomething else: yes", "Add.\n\nSomething else: yes"),
        ("Args:\n    a: One.", ""),
    ],
)
def test_sections_that_are_told_apart(text: str, description: str) -> None:
    assert read_docstring(text)[0] == description
