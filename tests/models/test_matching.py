"""Examines the internals of models.matching on purpose."""

from __future__ import annotations

from itertools import permutations

import pytest

from flink_skills.models import SkillIndex
from flink_skills.models.matching import stem

SKILLS = [
    ("checkpoints", "Diagnose Flink checkpoints that expire, time out or are declined"),
    ("memory", "Diagnose Flink processes that run out of memory: OutOfMemoryError, heap, metaspace"),
    ("triage", "First look at any Flink job that failed: find the exception and its root cause"),
    ("money", "Convert amounts between currencies"),
    ("weather", "Weather forecasts and observations of a city"),
    ("zh", "诊断检查点超时问题"),
]


@pytest.mark.parametrize(
    ("event", "skill"),
    [
        ("Checkpoint 17 expired before completing", "checkpoints"),
        ("checkpointing keeps timing out", "checkpoints"),
        ("java.lang.OutOfMemoryError: Java heap space", "memory"),
        ('{"lines": ["10:00 ERROR\\njava.lang.OutOfMemoryError"]}', "memory"),
        ("the job failed with an exception", "triage"),
        ("convert this currency", "money"),
        ("the forecast of tomorrow", "weather"),
        ("作业的检查点超时了", "zh"),
        ("hello there", None),
        ("what should I do with it, please?", None),
        ("", None),
        ("12345 67 !!", None),
    ],
)
def test_the_best_description_wins(event: str, skill: str | None) -> None:
    assert SkillIndex(SKILLS).best(event) == skill


def test_the_order_of_the_menu_does_not_matter() -> None:
    for order in permutations(SKILLS[:4]):
        assert SkillIndex(order).best("checkpoint exception: declined") == "checkpoints"


def test_ties_go_by_name() -> None:
    same = [("b", "Read logs"), ("c", "Read logs"), ("a", "Read logs")]
    assert SkillIndex(same).best("logs") == "a"


def test_an_empty_menu_has_no_best() -> None:
    assert SkillIndex([]).best("checkpoint") is None


def test_one_word_in_common_is_chance_in_a_long_event() -> None:
    prose = " ".join(f"wort{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(120))
    index = SkillIndex(SKILLS)
    assert index.best(f"{prose} currencies") is None
    assert index.best(f"{prose} convert currencies") == "money"


def test_a_word_that_nearly_all_descriptions_have_is_no_match() -> None:
    index = SkillIndex([(name, f"Flink {name} trouble") for name in ("aa", "bb", "cc", "dd")])
    assert index.best("Flink") is None
    assert index.best("Flink cc") == "cc"


def test_a_long_description_has_no_advantage_by_its_length() -> None:
    rambling = "Weather, climate, rain, wind, snow, storms, ice, maps, charts, and whatever else one may wish"
    assert SkillIndex([("long", rambling), ("short", "Rain")]).best("rain") == "short"


@pytest.mark.parametrize(
    "words",
    [
        ("checkpoint", "checkpoints", "checkpointing", "checkpointed"),
        ("query", "queries"),
        ("diagnose", "diagnosing", "diagnosed", "diagnosis"),
        ("fail", "fails", "failed", "failing"),
    ],
)
def test_forms_of_a_word_have_one_stem(words: tuple[str, ...]) -> None:
    assert len({stem(word) for word in words}) == 1


@pytest.mark.parametrize("word", ["class", "status", "bus", "red", "ring"])
def test_words_that_only_look_like_forms_stay(word: str) -> None:
    assert stem(word) == word
