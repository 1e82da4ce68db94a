"""Rules about prose, with the examples in their list, and exceptions from them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from checks.prose.budgets import WORDS, count, read_budgets
from checks.prose.check import BUDGETS, RULES
from checks.prose.passages import Allowance, File, Passage
from checks.prose.rules import find_hits, read_rules

ROOT = Path(__file__).resolve().parents[2]
LISTED = yaml.safe_load((ROOT / RULES).read_text(encoding="utf-8"))
RULE_BY_CODE = read_rules(ROOT / RULES)
BUDGET_BY_CODE = read_budgets(ROOT / BUDGETS)


def hits_of(code: str, text: str, path: str = "flink_skills/a.py") -> int:
    passage = Passage(RULE_BY_CODE[code].kinds[0], 1, text.count("\n") + 1, text)
    hits, messages = find_hits(File(path, (passage,)), RULE_BY_CODE)
    assert not messages
    return sum(hit.rule == code for hit in hits)


@pytest.mark.parametrize("code", LISTED)
def test_rule_finds_its_example_and_not_the_near_miss(code: str) -> None:
    assert hits_of(code, LISTED[code]["hit"]) == 1
    assert hits_of(code, LISTED[code]["miss"]) == 0


@pytest.mark.parametrize(
    ("code", "text", "number"),
    [
        ("B25", "Two run at once,\nand at once again.", 2),
        ("B25", "Two run at\nonce.", 1),
        ("B25", "The message `at once` and ``at once``.", 0),
        ("B25", "See [this page](pages/at once.md).", 0),
        ("B05", "Return the name.\n\nIt is short; it has one word.", 0),
        ("B07", ">>> print('this is no number')\n", 0),
    ],
    ids=["twice", "over lines", "code", "target of a link", "second paragraph", "doctest"],
)
def test_text_that_a_rule_sees(code: str, text: str, number: int) -> None:
    assert hits_of(code, text) == number


def test_fragments_are_messages_of_the_product_alone() -> None:
    assert hits_of("M01", LISTED["M01"]["hit"], "tests/a.py") == 0


def test_hit_has_its_line() -> None:
    passage = Passage("docstring", 10, 13, "A tool.\n\nIts ``code\nspans lines``. It works at once.")

    hits, _ = find_hits(File("a.py", (passage,)), RULE_BY_CODE)

    assert [str(hit) for hit in hits] == ["a.py:13: A tool. Its X . It works at once."]


@pytest.mark.parametrize(
    ("line", "rules", "remaining", "message"),
    [
        (3, ("B25",), [], ""),
        (5, ("B25",), [], ""),
        (2, ("B25",), [], ""),
        (1, ("B25",), ["B25"], "B25 has no hit there"),
        (6, ("B25",), ["B25"], "B25 has no hit there"),
        (3, ("B25", "B07"), [], "B07 has no hit there"),
        (3, (), ["B25"], "it needs rules and a reason"),
    ],
    ids=["first line", "last line", "line before", "too early", "too late", "one too many", "malformed"],
)
def test_comment_allows_hits(line: int, rules: tuple[str, ...], remaining: list[str], message: str) -> None:
    passage = Passage("docstring", 3, 5, "A tool.\n\nBoth run at once, again at once.")

    hits, messages = find_hits(File("a.py", (passage,), (Allowance(line, rules),)), RULE_BY_CODE)

    assert sorted({hit.rule for hit in hits}) == remaining
    assert len(messages) == bool(message)
    assert all(f"not valid: {message} (a.py:{line})." in found for found in messages)


@pytest.mark.parametrize("code", BUDGET_BY_CODE)
def test_every_budget_counts_its_words_or_clauses(code: str) -> None:
    budget = BUDGET_BY_CODE[code]
    sentences = {"D10": "There is not one without it.", "D11": "A tool that calls what reads which file."}
    text = sentences.get(code) or " ".join(sorted(budget.words))

    counts = count(File("flink_skills/a.py", (Passage("comment", 1, 1, text),)), BUDGET_BY_CODE)

    assert counts["code", code] == (len(budget.words) or 1)
    assert counts["code", WORDS] == len(text.split())


@pytest.mark.parametrize(
    ("kind", "path", "group"),
    [
        ("function", "flink_skills/a.py", "code"),
        ("comment", "tests/test_a.py", None),
        ("message", "flink_skills/a.py", None),
        ("row", "docs/a.md", "docs"),
        ("prose", "skills/a/SKILL.md", "docs"),
    ],
)
def test_groups_of_budgets(kind: str, path: str, group: str | None) -> None:
    counts = count(File(path, (Passage(kind, 1, 1, "what it is"),)), BUDGET_BY_CODE)

    assert {found: counts[found, "D01"] for found, code in counts if code == WORDS} == ({group: 1} if group else {})
