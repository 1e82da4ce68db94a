"""Examines the internals of models.offline_rules on purpose."""

from __future__ import annotations

from itertools import permutations

import pytest

from flink_skills.models import SkillIndex
from flink_skills.models.offline_rules import first_command, first_paragraph, stem

SKILLS = [
    ("checkpoints", "Diagnose Flink checkpoints that expire, time out or are declined"),
    ("memory", "Diagnose Flink processes that run out of memory: OutOfMemoryError, heap, metaspace"),
    ("triage", "First look at any Flink job that failed: find the exception and its root cause"),
    ("money", "Convert amounts between currencies"),
    ("weather", "Weather forecasts and observations of a city"),
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


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("```bash\nls -l\n```", "ls -l"),
        ("```sh\na\nb\n```", "a\nb"),
        ("``` shell title=x\nmake\n```", "make"),
        ("~~~bash\nls\n~~~", "ls"),
        ("````bash\necho '```'\n````", "echo '```'"),
        ("```console\n$ python3 x.py\nresult: 5\n$ python3 y.py\n```", "python3 x.py\npython3 y.py"),
        ("```bash\n$ ls\n```", "ls"),
        ("```\npython3 scripts/x.py\n```", "python3 scripts/x.py"),
        ("```\n# first\n./run.sh now\n```", "# first\n./run.sh now"),
        ("```\nFOO=1 BAR=2 python3 x.py\n```", "FOO=1 BAR=2 python3 x.py"),
        ("```\n$SKILLS_DIR/x/run.sh\n```", "$SKILLS_DIR/x/run.sh"),
        ("1. Run:\n\n   ```bash\n   cat <<E\n   x\n   E\n   ```\n", "cat <<E\nx\nE"),
        ("```python\nprint(1)\n```\n\n```bash\nls\n```", "ls"),
        ("```json\n{}\n```\n\n```\nSome sample output.\n```\n\n```sh\nls\n```", "ls"),
        ("```bash\n\n```\n\n```bash\nls\n```", "ls"),
        ("```bash\r\nls\r\n```\r\n", "ls"),
        ("Use `ls` for that.", None),
        ("```python\nprint(1)\n```", None),
        ("```\nThe output looks like this.\n```", None),
        ("```bash\nunclosed", None),
        ("````md\n```bash\nls\n```\n", "ls"),
        ("~~~~\nls\n~~~\n~~~~~\n", "ls\n~~~"),
        ("```sh `x`\n```sh\nls\n```", "ls"),
        ("```{.bash}\nls\n  ```  ", "ls"),
        ("", None),
    ],
)
def test_the_first_command_block(text: str, command: str | None) -> None:
    assert first_command(text) == command


@pytest.mark.parametrize(
    ("text", "paragraph"),
    [
        ("# Title\n\nFirst line\nsecond line.\n\nOther.", "First line second line."),
        ('<skill_content name="x">\n# T\n\nText.\n</skill_content>', "Text."),
        ("```bash\nls\n```\n\nAfter.", "After."),
        ("# Only a title", "# Only a title"),
        ("# T\n```\na\n```\nB.\nC.\n~~~\nd\n~~~", "B. C."),
        ("```\n\nUnclosed.", "Unclosed."),
    ],
)
def test_the_first_paragraph(text: str, paragraph: str) -> None:
    assert first_paragraph(text) == paragraph
