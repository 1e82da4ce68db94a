"""Names of the tools that skills bring over a conversation: one meaning each, and the same in all that tells them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flink_skills.manager import SkillView
from flink_skills.tools import FunctionTool, SkillState
from flink_skills.tools.dynamic import ToolPool

from .conftest import Chat, skill

BRINGING = [skill(name, files={"tools.py": "# see TWINS"}) for name in ("twin-a", "twin-b", "bring")]
VIEW = SkillView([*BRINGING, skill("mill", "grind", "skill_load")])
TWINS = {"twin-a": ["same"], "twin-b": ["same", "other"]}


def grind(what: str) -> str:
    """Grind, for the job."""
    return f"the job ground {what}"


def sift(what: str) -> str:
    """Sift."""
    return f"sifted {what}"


@pytest.fixture
def twins() -> Chat:
    return Chat(VIEW, None, brings=TWINS)


@pytest.fixture
def mill() -> Chat:
    return Chat(VIEW, ToolPool([grind, sift]), brings={"bring": ["grind", "bag"]})


async def select(talk: Chat, **arguments: Any) -> list[str]:
    """What is selected of the skill ``bring`` then, checked against what can be called."""
    result = await talk.call("skill_select_tools", skill="bring", **arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content) == result.value
    assert set(result.value["selected_tools"]) == set(await talk.business())
    selected: list[str] = result.value["selected_tools"]
    return selected


@pytest.mark.row("C11", "C8")
async def test_a_name_keeps_its_meaning_whatever_is_loaded(twins: Chat) -> None:
    assert (await twins.call("skill_load", skill="twin-a")).value["tools"] == ["same"]
    assert (await twins.call("same")).content == "twin-a: {}"
    loaded = await twins.call("skill_load", skill="twin-b")
    assert "With 2 tools: twin-b_same, other" in loaded.content
    assert await twins.business() == ["same", "twin-b_same", "other"]
    assert (await twins.call("same")).content == "twin-a: {}"
    assert (await twins.call("twin-b_same")).content == "twin-b: {}"
    await twins.call("skill_unload", skill="twin-a")
    assert await twins.business() == ["twin-b_same", "other"]
    gone = await twins.call("same")
    assert gone.is_error
    assert "Skill twin-a has it: call skill_load with it first." in gone.content
    await twins.call("skill_unload", skill="twin-b")
    assert (await twins.call("skill_load", skill="twin-b")).value["tools"] == ["twin-b_same", "other"]
    assert (await twins.call("skill_load", skill="twin-a")).value["tools"] == ["same"]
    assert (await twins.call("same")).content == "twin-a: {}"


@pytest.mark.row("C11")
async def test_a_name_outlives_the_turn_and_the_session(twins: Chat) -> None:
    await twins.call("skill_load", skill="twin-a")
    twins.state.clear()
    kept = SkillState.from_json(json.loads(json.dumps(twins.state.to_json())))
    again = Chat(VIEW, None, brings=TWINS)
    again.state = again.context.skill_state = kept
    assert (await again.call("skill_load", skill="twin-b")).value["tools"] == ["twin-b_same", "other"]


@pytest.mark.row("C11")
async def test_effects_alone_give_the_same_names(twins: Chat) -> None:
    replayed = SkillState()
    for name in ("twin-a", "twin-b"):
        for effect in (await twins.call("skill_load", skill=name)).effects:
            replayed.apply(json.loads(json.dumps(effect)))
    await twins.call("same")
    assert replayed == twins.state
    assert replayed.tool_names == {
        "same": ("twin-a", "same"),
        "twin-b_same": ("twin-b", "same"),
        "other": ("twin-b", "other"),
    }


@pytest.mark.row("C11")
async def test_with_a_limit_of_loaded_skills_a_load_tells_the_tools_of_the_next_request() -> None:
    talk = Chat(VIEW, None, brings=TWINS, max_loaded_skills=1)
    await talk.call("skill_load", skill="twin-a")
    told = (await talk.call("skill_load", skill="twin-b")).value["tools"]
    assert told == await talk.business() == ["twin-b_same", "other"]
    assert (await talk.call("same")).is_error


@pytest.mark.row("C8")
async def test_what_a_load_tells_does_not_count_on_a_skill_that_it_puts_away() -> None:
    talk = Chat(VIEW, ToolPool([grind, sift]), brings={"bring": ["grind"]}, max_loaded_skills=1)
    await talk.call("skill_load", skill="bring")
    await talk.call("skill_select_tools", skill="bring", tools=["sift"])
    assert (await talk.call("skill_load", skill="mill")).value["tools"] == ["grind"] == await talk.business()


@pytest.mark.row("I4", "C4", "C11")
async def test_a_skills_own_tool_is_chosen_by_its_name_and_the_jobs_by_its_own(mill: Chat) -> None:
    loaded = await mill.call("skill_load", skill="bring")
    assert loaded.value["tools"] == await mill.business() == ["bring_grind", "bag"]
    assert await select(mill, tools=["bring_grind"]) == ["bring_grind"]
    assert (await mill.call("bring_grind", what="rye")).content == "bring: {'what': 'rye'}"
    assert await select(mill, tools=["grind"]) == ["grind"]
    assert (await mill.call("grind", what="rye")).content == "the job ground rye"
    assert await select(mill, tools=["bring_grind"], mode="add") == ["grind", "bring_grind"]
    assert await select(mill, include_all_tools=True) == ["bring_grind", "bag"]
    assert await select(mill, mode="clear") == []
    gone = await mill.call("bring_grind", what="rye")
    assert "Skill bring has it, but it is not selected: call skill_select_tools with mode add." in gone.content


@pytest.mark.row("I4", "C4")
async def test_adding_to_what_is_chosen_by_default(mill: Chat) -> None:
    await mill.call("skill_load", skill="bring")
    assert await select(mill, tools=["sift"], mode="add") == ["bring_grind", "bag", "sift"]


@pytest.mark.row("C4", "C11")
async def test_a_renamed_tool_may_be_chosen_by_the_name_in_its_skill_where_that_is_free(twins: Chat) -> None:
    for name in ("twin-a", "twin-b"):
        await twins.call("skill_load", skill=name)
    answer = await twins.call("skill_select_tools", skill="twin-b", tools=["same"])
    assert answer.value["selected_tools"] == ["twin-b_same"]
    assert await twins.business() == ["same", "twin-b_same"]


@pytest.mark.row("C8", "C11")
async def test_a_load_does_not_claim_the_jobs_tool_of_another_skill(mill: Chat) -> None:
    assert (await mill.call("skill_load", skill="mill")).value["tools"] == ["grind"]
    loaded = await mill.call("skill_load", skill="bring")
    assert "With 2 tools: bring_grind, bag" in loaded.content
    assert await mill.business() == ["bring_grind", "bag", "grind"]


@pytest.mark.row("C4", "C17")
async def test_what_a_model_has_anyway_is_no_tool_of_a_skill(mill: Chat) -> None:
    loaded = await mill.call("skill_load", skill="mill")
    assert loaded.content == "loaded: mill\nWith 1 tool: grind"
    every = await mill.call("skill_select_tools", skill="mill", include_all_tools=True)
    assert every.value["selected_tools"] == ["grind"]
    assert "missing_tools" not in every.value
    chosen = await mill.call("skill_select_tools", skill="mill", tools=["skill_load", "sift"])
    assert chosen.value["selected_tools"] == ["sift"]
    assert chosen.value["note"] == "Not part of a skill, and always there: skill_load."


@pytest.mark.row("C2", "C11")
async def test_a_list_of_tools_has_the_names_that_can_be_called() -> None:
    sections = (("twin-a", "same"), ("twin-b", "same", "sift"))
    view = SkillView([skill(*names, files={"tools.py": ""}) for names in sections])
    talk = Chat(view, ToolPool([sift]), brings=TWINS)
    await talk.call("skill_load", skill="twin-a")
    assert (await talk.call("skill_list_tools", skill="twin-b")).value == ["same", "sift"]
    await talk.call("skill_load", skill="twin-b")
    assert (await talk.call("skill_list_tools", skill="twin-a")).value == ["same"]
    assert (await talk.call("skill_list_tools", skill="twin-b")).value == ["twin-b_same", "sift"]


@pytest.mark.row("C11")
async def test_a_tool_of_the_agents_own_keeps_its_name() -> None:
    own = (FunctionTool(grind),)
    talk = Chat(VIEW, None, own=own, brings={"bring": ["grind"]})
    assert (await talk.call("skill_load", skill="bring")).value["tools"] == ["bring_grind"]
    assert await select(talk, tools=["grind"]) == ["bring_grind"]
    assert (await talk.call("grind", what="rye")).content == "the job ground rye"
