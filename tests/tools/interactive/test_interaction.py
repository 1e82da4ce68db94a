from __future__ import annotations

import pytest

from flink_skills.tools.runs import find_interaction


@pytest.mark.row("G5")
@pytest.mark.parametrize(
    ("text", "kind", "hint"),
    [
        ("Name:", "prompt", "Name:"),
        ("hello\nAre you sure? \n\n", "prompt", "Are you sure?"),
        ("Press ENTER to go on", "prompt", "Press ENTER to go on"),
        ("please type your password", "prompt", "please type your password"),
        ("Continue? [y/N] ", "prompt", "Continue? [y/N]"),
        ("Overwrite (yes/no)", "prompt", "Overwrite (yes/no)"),
        ("Do you want to continue? [Y/n]: ", "prompt", "Do you want to continue? [Y/n]:"),
        ("Stage this hunk [y, n, q, ?]>", "prompt", "Stage this hunk [y, n, q, ?]>"),
        ("Enter the number of a city", "selection", "Enter the number of a city"),
        ("Choose a number", "selection", "Choose a number"),
        ("please select a number>", "selection", "please select a number>"),
        ("1. red\n2. blue\n> ", "selection", ">"),
        ("1) red\n2) blue\nyour choice:", "selection", "your choice:"),
        ("[1] red\n[2] blue\n?", "selection", "?"),
    ],
)
def test_what_waits_for_input(text: str, kind: str, hint: str) -> None:
    found = find_interaction(text)
    assert found is not None
    assert (found.kind, found.hint) == (kind, hint)
    assert found.to_json() == {"needs_input": True, "kind": kind, "hint": hint}


@pytest.mark.row("G5")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n \n",
        "working",
        "1. step one\ndone",
        "12.5 seconds\n3.1 more",
        "a: b",
        "took (n/a)s",
        "x[y]",
        "found (3/4)",
    ],
)
def test_what_does_not(text: str) -> None:
    assert find_interaction(text) is None


def test_a_long_line_is_cut() -> None:
    found = find_interaction("x" * 1_000 + "?")
    assert found is not None
    assert len(found.hint) == 201
