from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
from typing import Any

import pytest

from flink_skills import BaseToolSet, get_tool, register_tool, register_tools
from flink_skills.errors import ConfigError
from flink_skills.manager import SkillView
from flink_skills.tools import FunctionTool, ToolContext
from flink_skills.tools.dynamic import ToolPool, tool_names
from tests.tools.dynamic.conftest import SKILLS, StartChat, get_forecast, get_weather, query_database, send_mail

LOG = "flink_skills.tools"


class Shop(BaseToolSet):
    name = "shop"

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def initialize(self) -> None:
        self.seen.append("initialize")

    async def get_tools(self, context: ToolContext) -> list[Any]:
        self.seen.append(f"get_tools {context.key}")
        return [query_database, send_mail] if str(context.key).startswith("vip-") else [query_database]

    async def close(self) -> None:
        self.seen.append("close")


class Faulty(BaseToolSet):
    """Fails as it is told to, at first."""

    def __init__(self, step: str, error: BaseException | None = None, times: int = 10**6) -> None:
        self.step, self.error, self.left = step, error, times

    async def _do(self, step: str) -> None:
        if step == self.step and self.left:
            self.left -= 1
            if self.error is None:
                await asyncio.Event().wait()
            else:
                raise self.error

    async def initialize(self) -> None:
        await self._do("initialize")

    async def get_tools(self, context: ToolContext) -> list[Any]:
        await self._do("get_tools")
        return [send_mail]

    async def close(self) -> None:
        await self._do("close")


async def names(pool: ToolPool, key: str = "k", turn: int = 0) -> list[str]:
    return list(await pool.tools(ToolContext(key=key, turn=turn)))


@pytest.mark.row("I5")
async def test_says_what_there_is_when_it_is_initialized(caplog: pytest.LogCaptureFixture) -> None:
    register_tool("known", lambda text: text)
    pool = ToolPool([get_weather, FunctionTool(get_forecast), Shop(), "known", "unknown"], owner="triage")
    with caplog.at_level(logging.INFO, LOG):
        await pool.initialize()
    assert "agent triage: tool pool initialized: 4 tools, 1 toolsets" in caplog.text
    assert pool.names == ("get_weather", "get_forecast", "known", "unknown")


@pytest.mark.row("I5", "I2")
async def test_a_name_that_nothing_has_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    pool = ToolPool([get_weather, "xxx"])
    for _ in range(3):
        assert await names(pool) == ["get_weather"]
    assert caplog.text.count("Tool 'xxx' of the pool could not be resolved") == 1
    assert "register_tool" in caplog.text
    register_tool("xxx", get_forecast)
    assert await names(pool) == ["get_weather", "xxx"]


@pytest.mark.row("I1", "I7")
async def test_a_name_is_looked_up_in_the_pool_then_in_tool_sets_then_in_the_registry() -> None:
    def other(name: str) -> FunctionTool:
        return FunctionTool(lambda text: name, name=name)

    registered = {name: other(name) for name in ("get_weather", "query_database", "find_city")}
    for name, tool in registered.items():
        register_tool(name, tool)
    shop = Shop()
    pool = ToolPool(["get_weather", "query_database", "find_city", get_weather, shop])
    tools = await pool.tools(ToolContext())
    assert sorted(tools) == ["find_city", "get_weather", "query_database"]
    assert tools["find_city"] is registered["find_city"]
    assert tools["get_weather"].spec.description == "The weather of a city."
    assert tools["query_database"].spec.description == "Ask the database."


@pytest.mark.row("I2")
async def test_what_is_there_twice_counts_once() -> None:
    shop = Shop()
    pool = ToolPool([get_weather, get_weather, shop, shop, "get_weather"])
    assert await names(pool) == ["get_weather", "query_database"]
    assert shop.seen == ["initialize", "get_tools k"]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'get_weather' is in the pool twice: rename"):
        ToolPool([get_weather, FunctionTool(get_forecast, name="get_weather")])


@pytest.mark.parametrize("item", [42, None, dict, {"a": get_weather}, Shop])
def test_what_is_no_tool_is_refused(item: Any) -> None:
    with pytest.raises(ConfigError, match="is not a tool: pass a function"):
        ToolPool([item])


def test_a_function_without_a_fit_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="give it a name"):
        ToolPool([lambda text: text])


@pytest.mark.row("J6")
async def test_a_tool_set_gives_what_the_context_may_have(view: SkillView, chat: StartChat) -> None:
    shop = Shop()
    pool = ToolPool([shop])
    basic, vip = chat(pool, key="basic-1"), chat(pool, key="vip-1")
    for one in (basic, vip):
        await one.call("skill_load", skill="data")
        await one.call("skill_select_tools", skill="data", tools=["send_mail"], mode="add")
    assert await basic.business() == ["query_database"]
    assert await vip.business() == ["query_database", "send_mail"]
    assert (await vip.call("send_mail", to="a")).content == "sent to a"
    assert (await basic.call("send_mail", to="a")).is_error
    await pool.close()
    assert shop.seen[0] == "initialize"
    assert shop.seen[-1] == "close"


@pytest.mark.row("J6")
async def test_a_tool_set_is_asked_once_in_a_turn() -> None:
    shop = Shop()
    pool = ToolPool([shop])
    for turn in (1, 1, 1, 2):
        await names(pool, turn=turn)
    await names(pool, key="other", turn=2)
    assert shop.seen == ["initialize", "get_tools k", "get_tools k", "get_tools other"]


@pytest.mark.parametrize("step", ["initialize", "get_tools"])
@pytest.mark.parametrize("error", [OSError("no network"), SystemExit(3), None], ids=["raises", "exits", "hangs"])
async def test_a_tool_set_that_fails_is_a_warning_and_its_tools_are_absent(
    step: str, error: BaseException | None, caplog: pytest.LogCaptureFixture
) -> None:
    pool = ToolPool([get_weather, Faulty(step, error)], start_timeout=0.05, ask_timeout=0.05)
    for turn in (1, 2):
        assert await names(pool, turn=turn) == ["get_weather"]
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert "tool set 'Faulty'" in said[0].getMessage()
    assert "its tools are absent" in said[0].getMessage()


async def test_a_tool_set_that_is_well_again_has_its_tools_again(caplog: pytest.LogCaptureFixture) -> None:
    faulty = Faulty("get_tools", OSError("no network"), times=1)
    pool = ToolPool([faulty])
    assert await names(pool, turn=1) == []
    assert await names(pool, turn=2) == ["send_mail"]
    faulty.left = 1
    assert await names(pool, turn=3) == []
    assert caplog.text.count("no network; its tools are absent") == 2


async def test_a_tool_set_that_could_not_start_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = Faulty("initialize", OSError("no network"), times=1)
    pool = ToolPool([faulty])
    assert await names(pool, turn=1) == []
    assert await names(pool, turn=2) == []
    loop = asyncio.get_running_loop()
    later = loop.time() + 61
    monkeypatch.setattr(loop, "time", lambda: later)
    assert await names(pool, turn=3) == ["send_mail"]


@pytest.mark.parametrize("given", [[42], ["name"], None, [FunctionTool(get_weather, name="no good")]])
async def test_a_tool_set_that_gives_no_tools_is_a_warning(given: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(BaseToolSet):
        async def get_tools(self, context: ToolContext) -> Any:
            return given

    assert await names(ToolPool([get_weather, Odd()])) == ["get_weather"]
    assert "tool set 'Odd' returned no tools" in caplog.text


async def test_a_tool_set_cannot_put_the_runtimes_tools_or_the_pools_aside(caplog: pytest.LogCaptureFixture) -> None:
    class Greedy(BaseToolSet):
        async def get_tools(self, context: ToolContext) -> list[Any]:
            return [FunctionTool(send_mail, name=name) for name in ("skill_run", "get_weather", "extra")]

    pool = ToolPool([get_weather, Greedy()])
    tools = await pool.tools(ToolContext())
    assert list(tools) == ["get_weather", "extra"]
    assert tools["get_weather"].spec.description == "The weather of a city."
    assert "'skill_run' of tool set 'Greedy' is named like one of the runtime's" in caplog.text
    assert "'get_weather' of tool set 'Greedy' is omitted" in caplog.text


async def test_closing_goes_on_when_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()
    pool = ToolPool([Faulty("close", OSError("busy")), Faulty("initialize", OSError("never started")), shop])
    await pool.initialize()
    await pool.close()
    await pool.close()
    assert shop.seen == ["initialize", "close"]
    assert "tool set 'Faulty' did not close" in caplog.text


async def test_tools_of_a_turn_do_not_pile_up() -> None:
    class New(BaseToolSet):
        """Makes its functions anew each time."""

        async def get_tools(self, context: ToolContext) -> list[Any]:
            def fresh(text: str) -> str:
                return text

            return [fresh]

    pool = ToolPool([New()])
    for turn in range(1, 700):
        assert await names(pool, turn=turn) == ["fresh"]
    assert pool._function_tool.cache_info().currsize <= 512
    assert len(pool._by_turn) <= 256


@pytest.mark.row("I8", "I7", "A9", "C17")
async def test_a_conversation_gets_its_tools_with_its_skills(pool: ToolPool, chat: StartChat) -> None:
    talk = chat(pool)
    assert await talk.business() == []
    loaded = await talk.call("skill_load", skill="weather")
    assert await talk.business() == ["get_weather", "get_forecast"]
    assert "get_weather" in loaded.content
    assert "get_forecast" in loaded.content
    assert (await talk.call("get_weather", city="Ulm")).content == "sunny in Ulm"
    assert (await talk.call("get_forecast", city="Ulm", days=2)).value == {"city": "Ulm", "days": ["sunny"] * 2}
    await talk.call("skill_select_tools", skill="weather", tools=["get_forecast"])
    assert await talk.business() == ["get_forecast"]
    await talk.call("skill_load", skill="data")
    assert await talk.business() == ["query_database", "get_weather", "get_forecast"]
    await talk.call("skill_unload", skill="data")
    await talk.call("skill_unload", skill="weather")
    assert await talk.business() == []
    assert SKILLS[0].tools == ("get_weather", "get_forecast")


class Plain(BaseToolSet):
    """Has plain methods, as other frameworks declare them."""

    def __init__(self) -> None:
        super().__init__(name="plain")
        self.tools: list[Any] = []
        self.closed = False

    def initialize(self) -> None:
        super().initialize()
        self.tools = [FunctionTool(query_database)]

    def get_tools(self, context: ToolContext) -> list[Any]:
        return self.tools

    def close(self) -> None:
        super().close()
        self.closed = True


@pytest.mark.filterwarnings("error")
async def test_methods_can_be_plain() -> None:
    shop = Plain()
    pool = ToolPool([shop])
    assert [*await pool.tools(ToolContext(turn=1))] == ["query_database"]
    assert shop.label == "tool set 'plain'"
    await pool.close()
    assert shop.closed


async def test_asynchronous_methods_can_call_those_of_the_base_class() -> None:
    class Late(Plain):
        async def initialize(self) -> None:
            await BaseToolSet.initialize(self)
            self.tools = [send_mail]

    assert [*await ToolPool([Late()]).tools(ToolContext(turn=1))] == ["send_mail"]


async def test_a_plain_method_that_hangs_has_a_deadline(caplog: pytest.LogCaptureFixture) -> None:
    goes_on = threading.Event()

    class Hangs(Plain):
        def get_tools(self, context: ToolContext) -> list[Any]:
            goes_on.wait()
            return self.tools

    found = await ToolPool([Hangs()], ask_timeout=0.05).tools(ToolContext(turn=1))
    goes_on.set()
    assert not found
    assert "did not respond within 0.05 s" in caplog.text


def test_arguments_of_other_frameworks_have_advice() -> None:
    with pytest.raises(TypeError, match="Shop has no argument 'filters': override around_tool"):
        Shop(filters=[])  # type: ignore[call-arg]


@pytest.mark.row("J3")
def test_registers_as_a_decorator_in_every_form() -> None:
    @register_tool
    def first(text: str) -> str:
        "The first."
        return text

    @register_tool()
    def second(text: str) -> str: ...

    @register_tool("third")
    def three(text: str) -> str: ...

    @register_tool(name="fourth", description="Number four.")
    def four(text: str) -> str: ...

    assert first("still a function") == "still a function"
    assert three.__name__ == "three"
    assert tool_names() == ["first", "fourth", "second", "third"]
    for name, description in {"first": "The first.", "third": "third", "fourth": "Number four."}.items():
        tool = get_tool(name)
        assert tool is not None
        assert (tool.spec.name, tool.spec.description) == (name, description)
    assert get_tool("first") is get_tool("first")
    assert get_tool("fifth") is None


@pytest.mark.row("I3", "J3")
def test_registers_by_call() -> None:
    register_tool("weather", get_weather)
    ready = FunctionTool(get_forecast)
    assert register_tool(ready) is ready
    register_tools({"mail": send_mail, "get_forecast": ready})
    assert tool_names() == ["get_forecast", "mail", "weather"]
    assert get_tool("get_forecast") is ready


@pytest.mark.row("J3")
def test_a_name_that_is_taken_is_refused() -> None:
    register_tool("weather", get_weather)
    register_tool("weather", get_weather)  # the same one
    with pytest.raises(ConfigError, match=r"'weather' is already registered by .*get_weather.*under another name"):
        register_tool("weather", get_forecast)
    tool = get_tool("weather")
    assert tool is not None
    assert tool.spec.description == "The weather of a city."


def test_all_are_registered_or_none() -> None:
    register_tool("weather", get_weather)
    with pytest.raises(ConfigError):
        register_tools({"mail": send_mail, "weather": get_forecast})
    assert tool_names() == ["weather"]


def test_a_module_that_is_loaded_again_registers_again() -> None:
    code = "def lookup(text: str) -> str:\n    'Version {}.'\n    return text\nregister_tool(lookup)\n"
    for version in (1, 2):
        exec(code.format(version), {"__name__": "some.module", "register_tool": register_tool})
    tool = get_tool("lookup")
    assert tool is not None
    assert tool.spec.description == "Version 2."


def test_inner_functions_of_one_place_are_different_tools() -> None:
    def make(answer: str) -> Any:
        def inner(text: str) -> str:
            return answer

        return inner

    register_tool("inner", make("a"))
    with pytest.raises(ConfigError, match="already registered"):
        register_tool("inner", make("b"))


@pytest.mark.parametrize(("name", "target"), [("no good", get_weather), ("", lambda text: text), ("x" * 65, send_mail)])
def test_a_name_that_no_provider_takes_is_refused(name: str, target: Any) -> None:
    with pytest.raises(ConfigError, match="give it a name"):
        register_tool(name, target)


@pytest.mark.parametrize("target", [42, dict])
def test_what_is_no_function_is_refused(target: Any) -> None:
    with pytest.raises(ConfigError, match="is not a tool"):
        register_tool("some", target)


def test_a_tool_keeps_its_name() -> None:
    with pytest.raises(ConfigError, match="only functions can be registered"):
        register_tool("weather", FunctionTool(get_weather))


@dataclasses.dataclass
class City:
    name: str


def test_annotations_may_be_defined_after_the_registration() -> None:
    namespace: dict[str, Any] = {"__name__": "some.module", "register_tool": register_tool}
    exec(
        "from __future__ import annotations\n"
        "@register_tool\ndef find(city: City) -> str:\n    'Finds.'\n    return city.name\n",
        namespace,
    )
    namespace["City"] = City
    tool = get_tool("find")
    assert tool is not None
    assert "city" in tool.spec.parameters["properties"]


@pytest.mark.row("I5")
async def test_a_function_that_cannot_be_described_is_skipped(
    caplog: pytest.LogCaptureFixture, chat: StartChat
) -> None:
    def odd(*texts: str) -> str: ...

    register_tool("query_database", odd)
    talk = chat(ToolPool(["query_database", get_weather]))
    await talk.call("skill_load", skill="data")
    assert await talk.business() == ["get_weather"]
    assert "Tool 'query_database' of the pool could not be resolved" in caplog.text


@pytest.mark.row("I3", "I7")
async def test_registered_tools_come_with_skills(chat: StartChat) -> None:
    # Conditional registration is a plain "if" around the call.
    register_tools({"get_weather": get_weather})
    talk = chat(ToolPool(["get_weather", "query_database"]))
    await talk.call("skill_load", skill="data")
    assert await talk.business() == ["get_weather"]
    assert (await talk.call("get_weather", city="Ulm")).content == "sunny in Ulm"


@pytest.mark.row("I4")
async def test_a_registered_tool_that_is_in_no_pool_is_not_there_for_skills(chat: StartChat) -> None:
    register_tool("query_database", get_weather)
    talk = chat(ToolPool([get_weather]))
    await talk.call("skill_load", skill="data")
    assert await talk.business() == ["get_weather"]
