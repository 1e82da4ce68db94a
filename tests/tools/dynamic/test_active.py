from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, BaseToolSet, load_agent_yaml, register_tool, tool, tool_pool
from flink_skills.agents.declare.declaration import declared_pool, read_declaration
from flink_skills.errors import ConfigError, PlanError
from flink_skills.manager import SkillView
from flink_skills.tools import FunctionTool, SkillState, ToolContext, load_effect, tools_effect, touch_effect
from flink_skills.tools.dynamic import ToolPool, active_names, active_tools, not_active
from tests.tools.dynamic.conftest import (
    SKILLS,
    Chat,
    FakeBundled,
    StartChat,
    get_forecast,
    get_weather,
    query_database,
    send_mail,
    skill,
)

POOL = {tool.spec.name: tool for tool in map(FunctionTool, (get_weather, get_forecast, query_database, send_mail))}


def loaded(*names: str, **brought: list[str]) -> SkillState:
    state = SkillState()
    for name in names:
        specs = [{"name": tool, "description": "", "parameters": {}} for tool in brought.get(name, ())]
        state.apply(load_effect(name, "1", bundled=specs))
    return state


def names_of(state: SkillState, view: SkillView, pool: Any = POOL, taken: Any = ()) -> list[str]:
    return [tool.spec.name for tool in active_tools(state, view, pool, FakeBundled(), taken).tools]


@pytest.mark.row("I7")
def test_nothing_is_active_before_a_skill_is_loaded(view: SkillView) -> None:
    assert active_tools(SkillState(), view, POOL, None, ["load_skill"]) == active_tools(
        loaded("plain"), view, POOL, None, []
    )
    assert names_of(SkillState(), view) == []


@pytest.mark.row("I2")
async def test_the_tools_section_is_the_default(pool: ToolPool, chat: StartChat) -> None:
    talk: Chat = chat(pool, tools="core")
    await talk.call("load_skill", name="office")
    assert await talk.business() == []  # commented out, or not in the pool, or behind the section's end
    await talk.call("load_skill", name="weather")
    assert await talk.business() == ["get_weather", "get_forecast"]


@pytest.mark.row("I2", "I5", "C17")
async def test_an_unknown_name_is_skipped_and_logged_once(
    pool: ToolPool, chat: StartChat, caplog: pytest.LogCaptureFixture
) -> None:
    talk: Chat = chat(pool)
    await talk.call("skill_load", skill="office")
    for _ in range(3):
        await talk.tools()
        pool.note(talk.notes)
    assert caplog.text.count("Tool 'not_in_pool' of skill 'office' could not be resolved") == 1
    assert "send_mail" not in caplog.text


@pytest.mark.row("I2")
def test_a_tool_that_two_skills_name_is_there_once(view: SkillView) -> None:
    active = active_tools(loaded("weather", "data"), view, POOL, None, [])
    assert [tool.spec.name for tool in active.tools] == ["query_database", "get_weather", "get_forecast"]
    assert active.origin == {"query_database": "data", "get_weather": "data", "get_forecast": "weather"}
    assert active_names(loaded("weather", "data"), view, POOL, []) == {
        "data": ["query_database", "get_weather"],
        "weather": ["get_weather", "get_forecast"],
    }


@pytest.mark.row("I4", "C4", "C16")
async def test_a_selection_narrows_and_may_name_others_of_the_pool(pool: ToolPool, chat: StartChat) -> None:
    talk: Chat = chat(pool)
    await talk.call("skill_load", skill="weather")
    assert "send_mail" not in await talk.business()
    answer = await talk.call("skill_select_tools", skill="weather", tools=["send_mail"], mode="add")
    assert set(answer.value["selected_tools"]) == {"get_weather", "get_forecast", "send_mail"}
    assert await talk.business() == ["get_weather", "get_forecast", "send_mail"]
    answer = await talk.call("skill_select_tools", skill_name="weather", tools=["get_weather"])
    assert answer.value == {
        "skill": "weather",
        "mode": "replace",
        "selected_tools": ["get_weather"],
        "include_all_tools": False,
    }
    assert await talk.business() == ["get_weather"]
    await talk.call("skill_select_tools", skill="weather", mode="clear")
    assert await talk.business() == []
    await talk.call("skill_select_tools", skill="weather", include_all_tools=True)
    assert await talk.business() == ["get_weather", "get_forecast"]


@pytest.mark.row("I2")
async def test_a_selection_stays_until_it_is_changed(pool: ToolPool, chat: StartChat) -> None:
    talk: Chat = chat(pool)
    await talk.call("skill_load", skill="weather")
    await talk.call("skill_select_tools", skill="weather", tools=["get_weather"])
    talk.next_turn()
    await talk.call("skill_load", skill="weather")  # again: nothing new
    assert await talk.business() == ["get_weather"]


def test_a_skill_outside_of_the_view_activates_nothing(view: SkillView) -> None:
    assert names_of(loaded("weather", "gone", gone=["own"]), view) == ["get_weather", "get_forecast"]
    assert names_of(loaded("weather"), SkillView([SKILLS[1]])) == []


def test_the_agents_own_tools_are_not_replaced(view: SkillView) -> None:
    active = active_tools(loaded("weather"), view, POOL, None, ["get_weather", "skill_load"])
    assert [tool.spec.name for tool in active.tools] == ["get_forecast"]
    assert "Tool 'get_weather' of the pool is left out: the agent has a tool of that name" in active.notes


@pytest.mark.row("A9")
def test_without_a_pool_a_tools_section_is_information(view: SkillView) -> None:
    assert active_tools(loaded("weather", "office"), view, {}, None, []).notes == ()


def test_naming_the_runtimes_tools_is_no_mistake() -> None:
    view = SkillView([skill("guide", "skill_run", "own_tool", "get_weather")])
    active = active_tools(loaded("guide"), view, POOL, None, ["skill_run", "own_tool"])
    assert [tool.spec.name for tool in active.tools] == ["get_weather"]
    assert active.notes == ()


@pytest.mark.row("I2", "E7")
def test_order_and_names_do_not_depend_on_the_order_of_use(view: SkillView) -> None:
    found = set()
    for order in itertools.permutations(("weather", "data", "plain")):
        state = loaded(*order, plain=["run"], data=["run"])
        state.apply(touch_effect(order[0]))
        found.add(tuple(names_of(state, view)))
    assert found == {("query_database", "get_weather", "run", "plain_run", "get_forecast")}


@pytest.mark.row("C8")
async def test_a_skill_brings_its_own_tools(view: SkillView) -> None:
    state = loaded("plain", plain=["plot", "count"])
    active = active_tools(state, view, {}, FakeBundled(), [])
    assert [tool.spec.name for tool in active.tools] == ["plot", "count"]
    assert active.origin == {"plot": "plain", "count": "plain"}
    assert (await active.tools[0].call({"x": 1}, ToolContext())).content == "plain: {'x': 1}"
    assert names_of(SkillState(), view) == []
    assert active_tools(state, view, {}, None, []).tools == ()


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (None, ["get_weather", "plot"]),
        ("*", ["get_weather", "plot", "count"]),
        (("count",), ["count"]),
        (("send_mail", "plot"), ["send_mail", "plot"]),
        ((), []),
    ],
)
def test_a_selection_is_about_what_a_skill_names_and_brings(selection: Any, names: list[str]) -> None:
    view = SkillView([skill("plain", "get_weather", "plot")])
    state = loaded("plain", plain=["plot", "count"])
    state.apply(tools_effect("plain", selection))
    assert names_of(state, view) == names


def test_a_section_about_the_pool_alone_leaves_what_the_skill_brings(view: SkillView) -> None:
    assert names_of(loaded("weather", weather=["plot"]), view) == ["get_weather", "get_forecast", "plot"]


def test_a_brought_tool_gives_way_to_every_other_and_the_note_says_so(view: SkillView) -> None:
    state = loaded("plain", plain=["get_weather", "skill_run", "own", "free"])
    active = active_tools(state, view, POOL, FakeBundled(), ["own"])
    names = [tool.spec.name for tool in active.tools]
    # get_weather is the pool's whether it is active or not.
    assert names == ["plain_get_weather", "plain_skill_run", "plain_own", "free"]
    assert "Tool 'own' of skill 'plain' is called 'plain_own': its own name is taken or unfit" in active.notes


def test_a_renamed_tool_can_be_selected_by_either_name(view: SkillView) -> None:
    for name in ("own", "plain_own"):
        state = loaded("plain", plain=["own", "free"])
        state.apply(tools_effect("plain", (name,)))
        assert names_of(state, view, taken=["own"]) == ["plain_own"]


def test_selecting_renames_nothing(view: SkillView) -> None:
    state = loaded("plain", "data", plain=["run"], data=["run"])
    state.apply(tools_effect("data", ()))
    assert names_of(state, view) == ["plain_run"]
    assert names_of(loaded("plain", plain=["run"]), view) == ["run"]


@pytest.mark.row("C10")
async def test_a_call_of_a_tool_whose_skill_is_not_loaded(pool: ToolPool, chat: StartChat) -> None:
    talk: Chat = chat(pool)
    answer = await talk.call("get_weather", city="Ulm")
    assert answer.is_error
    assert answer.content.startswith(
        "Tool 'get_weather' not found. Is the skill loaded? Skills data, weather have it: call skill_load with it "
        "first."
    )
    await talk.call("skill_load", skill="weather")
    assert not (await talk.call("get_weather", city="Ulm")).is_error
    await talk.call("skill_unload", skill="weather")
    assert (await talk.call("get_weather", city="Ulm")).is_error


@pytest.mark.row("C10")
async def test_a_call_of_a_tool_that_is_not_selected(pool: ToolPool, chat: StartChat) -> None:
    talk: Chat = chat(pool)
    await talk.call("skill_load", skill="weather")
    await talk.call("skill_select_tools", skill="weather", tools=["get_forecast"])
    answer = await talk.call("get_weather", city="Ulm")
    assert "Skill weather has it, but it is not selected: call skill_select_tools with mode add." in answer.content


@pytest.mark.row("C10")
async def test_a_call_by_a_wrong_name(pool: ToolPool, chat: StartChat) -> None:
    answer = await chat(pool, tools="core").call("get_forcast")
    assert "Did you mean get_forecast (of skill weather)" in answer.content
    assert "Tools: load_skill, unload_skill" in answer.content


async def test_only_skills_and_tools_that_the_model_may_see_are_named(pool: ToolPool) -> None:
    talk = Chat(SkillView([SKILLS[3]]), pool)
    for name in ("get_weather", "get_wether"):
        answer = (await talk.call(name)).content
        assert answer.startswith(f"Tool {name!r} not found. Is the skill loaded? Tools: ")


def test_a_tool_that_has_another_name_now(view: SkillView) -> None:
    state = loaded("plain", "data", plain=["run"], data=["run"])
    text = not_active("run", state, view, POOL, ["skill_load", "run"])
    assert text is not None
    assert "It is called data_run or plain_run." in text


def test_a_brought_tool_that_is_not_selected(view: SkillView) -> None:
    state = loaded("plain", plain=["run", "plot"])
    state.apply(tools_effect("plain", ("plot",)))
    text = not_active("run", state, view, (), ["skill_load", "skill_select_tools"])
    assert text == (
        "Tool 'run' not found. Is the skill loaded? Skill plain has it, but it is not selected: call "
        "skill_select_tools with mode add. Tools: skill_load, skill_select_tools, plot"
    )


class Stock(BaseToolSet):
    async def get_tools(self, context: ToolContext) -> list[Any]:
        return [count]


class NeedsUrl(BaseToolSet):
    def __init__(self, url: str) -> None:
        self.url = url

    async def get_tools(self, context: ToolContext) -> list[Any]:
        return []


def count(article: str) -> int:
    "How many there are."
    return len(article)


@tool(name="mail", description="Writes to somebody.")
def write_mail(to: str) -> str:
    return f"wrote to {to}"


stock = Stock()


class Shop(Agent):
    name = "shop"
    model = "offline"

    def __init__(self) -> None:
        self.currency = "EUR"

    @tool
    def price(self, article: str) -> str:
        "The price."
        return f"{len(article)} {self.currency}"

    @tool(dynamic=True, description="What a customer saves.")
    def discount(self, article: str) -> str:
        return f"1 {self.currency}"

    @tool_pool
    def business(self) -> list[Any]:
        return [get_weather, self.discount, write_mail, FunctionTool(get_forecast, name="forecast"), "registered"]

    @tool_pool
    @staticmethod
    def others():  # type: ignore[no-untyped-def]
        yield stock
        yield stock
        yield get_weather


@pytest.mark.row("I1", "I3")
async def test_an_agent_declares_pools_of_anything() -> None:
    register_tool("registered", send_mail)
    found = read_declaration(Shop())
    assert {name: of.dynamic for name, of in found.tools.items()} == {"price": False, "discount": True}
    assert list(found.own_tools) == ["price"]
    pool = declared_pool(found)
    assert pool is not None
    assert pool.names == ("discount", "get_weather", "mail", "forecast", "registered")
    tools = await pool.tools(ToolContext())
    assert list(tools) == ["discount", "get_weather", "mail", "forecast", "count", "registered"]
    assert tools["discount"].spec.description == "What a customer saves."
    assert tools["mail"].spec.description == "Writes to somebody."
    assert (await tools["discount"].call({"article": "hat"}, ToolContext())).content == "1 EUR"
    assert (await tools["mail"].call({"to": "me"}, ToolContext())).content == "wrote to me"


def test_an_agent_without_a_pool_has_none() -> None:
    class Plain(Agent):
        @tool
        def price(self, article: str) -> float: ...

    found = read_declaration(Plain())
    assert declared_pool(found) is None
    assert found.pool == []


def pool_of(*items: Any) -> type[Agent]:
    class Odd(Agent):
        name = "odd"

        @tool
        def price(self, article: str) -> float: ...

        @tool_pool
        def business(self) -> Any:
            return items[0] if len(items) == 1 else items

    return Odd


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (({"a": count},), r"agent odd: @tool_pool business\(\) returns dict; return a list of tools"),
        (("count",), r"@tool_pool business\(\) returns str"),
        ((None,), "returns NoneType"),
        ((count, 42), r"business\(\), item 2 is 42; give a function"),
        ((count, dict), "item 2 is <class 'dict'>; give a function"),
        ((count, NeedsUrl), "item 2: .*NeedsUrl cannot be made .*give an instance"),
    ],
)
def test_what_is_no_pool_is_refused(items: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read_declaration(pool_of(*items)())


def test_an_asynchronous_pool_is_refused() -> None:
    class Odd(Agent):
        @tool_pool
        async def business(self) -> list[Any]:
            return []

    with pytest.raises(PlanError, match=r"business\(\) is asynchronous: make it a plain method"):
        read_declaration(Odd())


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (([FunctionTool(count, name="price")],), "'price' of the pool is named like one of the agent's own; rename it"),
        (([FunctionTool(count, name="skill_run")],), "'skill_run' of the pool is named like one of the runtime's"),
        ((["load_skill"],), "'load_skill' of the pool is named like one of the runtime's"),
        (([count, FunctionTool(get_weather, name="count")],), "'count' is in the pool twice: rename"),
        ((["no name"],), "give it a name"),
    ],
)
def test_a_name_that_is_taken_is_refused_when_the_agent_is_compiled(items: Any, message: str) -> None:
    with pytest.raises(PlanError, match=f"agent odd: .*{message}"):
        declared_pool(read_declaration(pool_of(*items)()))


def test_a_subclass_may_replace_a_pool() -> None:
    class Smaller(Shop):
        @tool_pool
        def business(self) -> list[Any]:
            return [count]

    pool = declared_pool(read_declaration(Smaller()))
    assert pool is not None
    assert pool.names == ("discount", "count", "get_weather")


@pytest.mark.row("I1")
async def test_yaml_names_tools_by_import_path_or_registered_name(tmp_path: Path) -> None:
    register_tool("registered", send_mail)
    file = tmp_path / "shop.yaml"
    here = __name__
    file.write_text(
        f"model: offline\ntools: ['{here}:count']\n"
        f"tool_pool:\n- {here}:get_weather\n- {here}:write_mail\n- {here}:NotThere\n- registered\n"
    )
    with pytest.raises(ConfigError, match=r"tool_pool: cannot import .*NotThere"):
        load_agent_yaml(file)
    file.write_text(file.read_text().replace("NotThere", "Stock"))
    found = read_declaration(load_agent_yaml(file))
    assert list(found.own_tools) == ["count"]
    pool = declared_pool(found)
    assert pool is not None
    assert list(await pool.tools(ToolContext())) == ["get_weather", "mail", "count", "registered"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tool_pool: get_weather", "tool_pool: expected a list, got 'get_weather'"),
        ("tool_pool: ['os:sep']", ""),
        ("tool_pool: ['os:environ']", "tool_pool: 'os:environ' is environ.*give a function"),
    ],
)
def test_yaml_that_names_no_tools_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(f"model: offline\n{text}\n")
    if not message:
        # A text behind an import path is a registered name; "/" is none that a tool can have.
        with pytest.raises(PlanError, match="give it a name"):
            declared_pool(read_declaration(load_agent_yaml(file)))
        return
    with pytest.raises(ConfigError, match=message):
        load_agent_yaml(file)
