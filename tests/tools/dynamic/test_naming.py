"""Examines the internals of tools.dynamic.active on purpose."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills.manager import SkillView
from flink_skills.tools import MAX_TOOL_NAMES, FunctionTool, SkillState, load_effect, unload_effect
from flink_skills.tools.dynamic import ToolPool
from flink_skills.tools.dynamic.active import brought_names, exposed_name, named_specs
from flink_skills.tools.dynamic.skill_programs import Slots
from tests.tools.dynamic.conftest import Chat, skill

_FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SKILLS = st.sampled_from(["a", "b", "a_b", "a b", "s" * 64])
_TOOLS = st.lists(st.sampled_from(["run", "b_run", "a_run", "b_c", "c", "c d", "t" * 64]), unique=True, max_size=4)


def load(
    state: SkillState, skill: str, tools: Sequence[str], reserved: Collection[str] = (), others: Collection[str] = ()
) -> dict[str, str]:
    """The names that the tools get with a load of their skill."""
    specs = named_specs(skill, [{"name": tool} for tool in tools], state, reserved, others)
    state.apply(load_effect(skill, "1", bundled=specs))
    return {str(spec["name"]): str(spec["exposed"]) for spec in specs}


@pytest.mark.row("C11")
@given(st.lists(st.tuples(_SKILLS, _TOOLS, st.booleans()), max_size=8), st.sets(st.sampled_from(["run", "a_run", "c"])))
def test_a_name_is_fit_and_never_means_two_tools(steps: list[tuple[str, list[str], bool]], reserved: set[str]) -> None:
    state, meanings = SkillState(), dict[str, tuple[str, str]]()
    for name, tools, is_load in steps:
        if is_load:
            load(state, name, tools, reserved, ["a", "b"])
        else:
            state.apply(unload_effect(name))
        state = SkillState.from_json(json.loads(json.dumps(state.to_json())))
        names = brought_names(state, state, reserved)
        assert len(set(names.values())) == len(names)
        for of, exposed in names.items():
            assert _FIT.fullmatch(exposed) and exposed not in reserved
            assert meanings.setdefault(exposed, of) == of
            assert state.tool_names[exposed] == of


def test_a_free_name_is_kept_and_a_given_one_is_not_given_again() -> None:
    state = SkillState()
    assert load(state, "a", ["run", "load_skill"], ["load_skill"]) == {"run": "run", "load_skill": "a_load_skill"}
    state.apply(unload_effect("a"))
    assert load(state, "b", ["run"]) == {"run": "b_run"}
    state.clear()
    assert load(state, "b", ["run", "plot"]) == {"run": "b_run", "plot": "plot"}
    assert load(state, "a", ["run"]) == {"run": "run"}


def test_names_that_are_alike_with_their_prefix_stay_apart() -> None:
    state = SkillState()
    assert load(state, "a", ["b_c"], ["b_c", "c"]) == {"b_c": "a_b_c"}
    assert load(state, "a_b", ["c"], ["b_c", "c"])["c"].startswith("a_b_c_")


def test_a_skill_cannot_pass_its_tool_off_as_one_of_another_skill() -> None:
    state = SkillState()
    assert load(state, "evil", ["a_run", "run"], others=["a", "evil"]) == {"a_run": "evil_a_run", "run": "run"}
    assert load(state, "a", ["run"], others=["a", "evil"]) == {"run": "a_run"}


def test_of_one_skill_the_own_names_come_first() -> None:
    assert load(SkillState(), "a", ["run", "a_run"], ["run"])["a_run"] == "a_run"


def test_a_name_that_the_job_took_later_is_the_jobs() -> None:
    state = SkillState()
    load(state, "a", ["run"])
    assert brought_names(state, ["a"], ["run"]) == {("a", "run"): "a_run"}
    assert load(state, "b", ["a_run"], ["run"])["a_run"] != "a_run", "it is in use"
    assert brought_names(state, ["a"], ()) == {("a", "run"): "run"}


def test_a_session_of_an_earlier_release_has_no_names_yet() -> None:
    state = SkillState()
    for name in ("a", "b"):
        state.apply(load_effect(name, "1", bundled=[{"name": "run"}]))
    assert state.tool_names == {}
    assert brought_names(state, state, ()) == {("a", "run"): "run", ("b", "run"): "b_run"}
    assert load(state, "c", ["run"]) == {"run": "c_run"}


def test_what_is_remembered_has_a_limit_and_names_stay_apart_beyond() -> None:
    state, meanings = SkillState(), dict[str, tuple[str, str]]()
    numbers = count()
    while len(state.tool_names) < MAX_TOOL_NAMES:
        skill = f"s{next(numbers)}"
        for tool, name in load(state, skill, [f"t{number}" for number in range(60)]).items():
            assert meanings.setdefault(name, (skill, tool)) == (skill, tool)
        state.apply(unload_effect(skill))
    kept = dict(state.tool_names)
    for skill in ("x", "y"):
        (name,) = load(state, skill, ["later"]).values()
        assert name.startswith(f"{skill}_later_")
        assert load(state, skill, ["later"]) == {"later": name}
        state.apply(unload_effect(skill))
    assert state.tool_names == kept
    assert load(state, "s0", ["t1"]) == {"t1": "t1"}


@pytest.mark.parametrize(("skill", "tool"), [("s" * 40, "t" * 40), ("日本", "語"), ("a.b", "c d")])
def test_what_does_not_fit_is_made_to_fit(skill: str, tool: str) -> None:
    name = exposed_name(skill, tool)
    assert _FIT.fullmatch(name)
    assert name != exposed_name(skill, tool + "x")
    assert name == exposed_name(skill, tool)


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


async def test_who_waits_longest_is_next() -> None:
    slots, order = Slots(1), []

    async def use(name: str) -> None:
        assert await slots.take(30)
        order.append(name)
        await asyncio.sleep(0)
        slots.release()

    await asyncio.wait_for(asyncio.gather(*(use(name) for name in "abc")), 30)
    assert order == ["a", "b", "c"]
    assert await slots.take(0)


async def test_waiting_ends() -> None:
    slots = Slots(1)
    assert await slots.take(0)
    assert not await slots.take(0)
    assert not await slots.take(0.01)
    slots.release()
    assert await slots.take(0)


@pytest.mark.parametrize("given", [False, True], ids=["while it waits", "as it gets a place"])
async def test_to_cancel_loses_no_place(given: bool) -> None:
    slots = Slots(1)
    await slots.take(0)
    waiting = asyncio.create_task(slots.take(30))
    await asyncio.sleep(0)
    if given:
        slots.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not given:
        assert not await slots.take(0)
        slots.release()
    assert await slots.take(0)
    assert not await slots.take(0)
