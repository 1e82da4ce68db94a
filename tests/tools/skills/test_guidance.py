"""The fixed parts of prompts and their sizes.

Examines the internals of tools.skills.skill_prompts on purpose.
"""

from __future__ import annotations

import json
import re

import pytest

from flink_skills.manager import SkillView, parse_menu
from flink_skills.skill import AgentSkill
from flink_skills.tools import PROFILES, TOOL_NAMES, SkillSettings
from flink_skills.tools.skills.skill_prompts import HEADING, guidance, introduction
from tests.tools.conftest import Conversation

FULL = PROFILES["full"]
WITH_TOOLS = SkillView([AgentSkill("weather", "Knows the weather.", "Tools:\n- get_weather\n\nAsk it.")])
BUDGETS = {
    "skill_list": 250,
    "skill_unload": 250,
    "skill_list_docs": 250,
    "skill_list_tools": 250,
    "skill_load": 450,
    "skill_select_docs": 450,
    "skill_select_tools": 450,
}


def named(text: str) -> set[str]:
    return {name for name in TOOL_NAMES if re.search(rf"(?<!\w){name}(?!\w)", text)}


def size(talk: Conversation, tool: str) -> int:
    spec = talk.tools.specs([tool])[0]
    return len(json.dumps({"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}))


@pytest.fixture
def view() -> SkillView:
    # More than can be listed in a schema: names count as entries of the menu, not as fixed cost.
    return SkillView([AgentSkill(f"s-{n}", "Does it.", "Do it.") for n in range(257)])


WRAPPING = len('{"type": "function", "function": }')


@pytest.mark.row("E2", "C14", "F30", "G8")
def test_the_work_from_beginning_to_end() -> None:
    text = guidance(SkillSettings(), FULL)
    assert text.startswith(f"{HEADING}\n- Discover")
    steps = ["Discover", "Inspect", "Load", "Optimize", "Document", "Execute"]
    assert re.findall(r"^- (\w+):", text, re.MULTILINE) == steps
    assert "Prefer editor_text" in text
    assert len(text) <= 1300
    assert "read-only" not in text, "commands can write to inputs/"


@pytest.mark.row("E2")
@pytest.mark.parametrize("without", [*sorted(FULL), None])
def test_only_tools_that_the_model_has_are_mentioned(without: str | None) -> None:
    tools = [tool for tool in FULL if tool != without]
    text = guidance(SkillSettings(), tools) + introduction(tools)
    assert named(text) <= set(tools)
    assert len(named(text)) >= 8


@pytest.mark.row("E2", "E9")
def test_by_profile() -> None:
    assert guidance(SkillSettings(), PROFILES["core"]) == ""
    assert named(guidance(SkillSettings(), PROFILES["knowledge_only"])) == set(PROFILES["knowledge_only"])


@pytest.mark.row("E2")
def test_it_can_be_replaced_and_removed() -> None:
    assert guidance(SkillSettings(guidance="Be quick."), PROFILES["core"]) == "Be quick."
    assert guidance(SkillSettings(guidance=""), FULL) == ""


@pytest.mark.parametrize("profile", ["core", "full"])
def test_the_introduction_is_part_of_the_menu(profile: str) -> None:
    view = SkillView([AgentSkill("a", "Does a.", "Do.")])
    words = introduction(PROFILES[profile])
    menu = view.menu(words)
    assert menu.startswith(words)
    assert parse_menu(menu) == [("a", "Does a.")]
    assert named(menu) == {"load_skill" if profile == "core" else "skill_load"}
    assert named(introduction(["skill_run"])) == set()
    assert SkillView([]).menu(words) == ""


@pytest.mark.row("E9", "E10")
async def test_the_fixed_cost_of_core(view: SkillView, shell_with) -> None:  # type: ignore[no-untyped-def]
    talk = Conversation(view, await shell_with(), artifacts=object())
    sizes = {tool: size(talk, tool) for tool in PROFILES["core"]}
    # With what providers put around each: 450 tokens at 4 characters.
    wrapped = sum(sizes.values()) + len(sizes) * WRAPPING
    assert wrapped + len(introduction(PROFILES["core"])) <= 1800, sizes


@pytest.mark.row("E10")
def test_the_fixed_cost_of_what_runs_nothing() -> None:
    talk = Conversation(WITH_TOOLS, None, settings=SkillSettings(tools=tuple(BUDGETS)))
    for tool, budget in BUDGETS.items():
        assert size(talk, tool) <= budget, tool


@pytest.mark.row("E9", "E10")
async def test_the_fixed_cost_of_full(shell_with) -> None:  # type: ignore[no-untyped-def]
    settings = SkillSettings(profile="full", tools=FULL)
    talk = Conversation(WITH_TOOLS, await shell_with(), settings=settings, artifacts=object())
    assert set(talk.tools.names) == set(FULL)
    sizes = {tool: size(talk, tool) for tool in FULL}
    wrapped = sum(sizes.values()) + len(sizes) * WRAPPING
    assert wrapped + len(introduction(FULL)) + len(guidance(settings, FULL)) <= 7200, sizes
