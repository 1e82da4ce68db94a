"""Tools that skills bring themselves, and files that come with an event, over whole turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills import tool
from flink_skills.testing import call, calls
from tests.features.conftest import Ask, Plain, Run
from tests.kit.models import Script

TOOLS = '''
def describe(text: str, times: int = 1) -> dict:
    """Describe a text.

    Args:
        text: What to describe.
    """
    print("not part of the answer")
    return {"by": "NAME", "length": len(text) * times}


def total(values: list[float]) -> float:
    """Add numbers."""
    return sum(values)
'''


class Clashes(Plain):
    """Has a tool of a name that a skill uses too."""

    @tool
    def total(self, values: list[float]) -> str:
        """Add numbers, for the job."""
        return "the job's"


@pytest.fixture
def skills(skills: Path) -> Path:
    for name in ("count", "shout"):
        (skills / name / "tools.py").write_text(TOOLS.replace("NAME", name))
    return skills


@pytest.mark.row("C11", "A2", "C8")
def test_names_that_clash_get_a_prefix_and_hide_nothing(ask: Ask) -> None:
    one, described, two, first, second, own, skills_own, gone = ask(
        call("skill_load", skill="count"),
        call("describe", text="abc", times=2),
        call("skill_load", skill="shout"),
        call("describe", text="abc"),
        call("shout_describe", text="abcd"),
        call("total", values=[1, 2]),
        call("count_total", values=[1, 2.5]),
        call("skill_unload", skill="shout"),
        agent=Clashes,
    )
    assert "describe" in one.text
    assert "count_total" in one.text
    assert described.text == '{"by": "count", "length": 6}\n\nprinted:\nnot part of the answer'
    assert "shout_describe" in two.text
    assert [answer.text.partition("}")[0] for answer in (first, second)] == [
        '{"by": "count", "length": 3',
        '{"by": "shout", "length": 4',
    ]
    assert own.text == "the job's"
    assert skills_own.text == "3.5"
    names = [
        {spec.name for spec in answer.request.tools if not spec.name.startswith("skill_")} for answer in (two, gone)
    ]
    assert {"describe", "shout_describe", "count_total", "shout_total", "total"} <= names[0]
    assert {"describe", "count_total", "total"} <= names[1]
    assert "shout_total" not in names[1]


@pytest.mark.row("F11", "F22")
def test_files_of_an_event_are_there_under_safe_names(run: Run, script: Script) -> None:
    event = {
        "question": "What is in them?",
        "files": [
            {"name": "../../etc/report.txt", "text": "first\n", "mime_type": "text/plain"},
            {"name": "report.txt", "data": b"second\n"},
            {"data": "dGhpcmQK"},
        ],
    }
    model = script(
        [
            calls(call("skill_load", skill="shout")),
            calls(call("skill_run", skill="shout", command="cd $WORK_DIR/inputs; ls; cat $(ls | grep -v event)")),
            "done",
        ]
    )
    assert run([event], tools="full") == ["done"]
    asked = str(model.requests[0].messages[0].content)
    assert "work/inputs/report.txt" in asked
    assert not [text for text in ("first", "second", "dGhpcmQK", "c2Vjb25k") if text in asked]
    result = str(model.requests[-1].messages[-1].content)
    for text in ("first", "second", "third"):
        assert text in result
