"""Examines the internals of tools.dynamic.tool_pool on purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from flink_skills import Tool, ToolResult, ToolSpec
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from flink_skills.tools import SkillSettings, SkillState, ToolContext, ToolServices, ToolSet, profile_tools
from flink_skills.tools.dynamic import Described, ToolPool, active_tools, not_active, tool_pool


def get_weather(city: str) -> str:
    "The weather of a city."
    return f"sunny in {city}"


def get_forecast(city: str, days: int) -> dict[str, Any]:
    "The weather of the next days."
    return {"city": city, "days": ["sunny"] * days}


def query_database(sql: str) -> list[str]:
    "Ask the database."
    return [sql]


def send_mail(to: str) -> str:
    "Send a mail."
    return f"sent to {to}"


def skill(name: str, *tools: str, text: str = "", files: Mapping[str, str] | None = None) -> AgentSkill:
    section = "Tools:\n" + "\n".join(f"- {tool}" for tool in tools) + "\n\n" if tools else ""
    return AgentSkill(name, f"All about {name}.", f"{section}Overview\n\n{text or 'How to.'}", files)


SKILLS = (
    skill("weather", "get_weather", "get_forecast"),
    skill("data", "query_database", "get_weather"),
    AgentSkill("office", "Mails.", "Tools:\n# - send_mail\n- not_in_pool\n\nOverview\n- query_database"),
    skill("plain"),
)


class FakeBundled:
    """Makes tools of what a load described, without a sandbox. ``brings`` are the tools of each skill."""

    def __init__(self, brings: Mapping[str, Sequence[str]] = MappingProxyType({})) -> None:
        self._brings = brings

    async def describe(self, skill: AgentSkill, context: ToolContext) -> Described:
        specs = ({"name": tool, "description": "", "parameters": {}} for tool in self._brings[skill.name])
        return Described(tuple(specs))

    def tool(self, skill_name: str, spec: Mapping[str, Any], exposed: str) -> Tool:
        return _Echo(skill_name, ToolSpec(exposed, str(spec.get("description", "")), spec.get("parameters", {})))


class _Echo(Tool):
    def __init__(self, skill_name: str, spec: ToolSpec) -> None:
        self._skill = skill_name
        self._spec = spec

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(f"{self._skill}: {dict(arguments)}")


class Chat:
    """Calls tools of a real profile as a turn does: with the tools of the pool that are active then."""

    def __init__(
        self,
        view: SkillView,
        pool: ToolPool | None,
        tools: str = "full",
        own: tuple[Tool, ...] = (),
        key: Any = "k",
        brings: Mapping[str, Sequence[str]] | None = None,
        **settings_of_model: Any,
    ) -> None:
        settings = SkillSettings.of(SkillConfig(), {"skill_tools": [tools], **settings_of_model})
        bundled: Any = FakeBundled(brings) if brings is not None else None
        own_names = frozenset(tool.spec.name for tool in own)
        self.services = ToolServices(view, settings=settings, pool=pool, bundled=bundled, own_tools=own_names)
        self.fixed = ToolSet([*profile_tools(settings.tools, self.services), *own])
        self.state = SkillState()
        self.context = ToolContext(key=key, turn=1, agent="shop", call_id="c", skills=view, skill_state=self.state)
        self.context.workspace = object()  # type: ignore[assignment]
        self.notes: list[str] = []

    async def tools(self) -> ToolSet:
        """Those of the next request."""
        self.state.evict(self.services.settings.max_loaded)
        pool = await self.services.pool.tools(self.context) if self.services.pool is not None else {}
        view = self.services.view
        active = active_tools(self.state, view, pool, self.services.bundled, self.fixed.names)
        self.notes += active.notes
        return self.fixed.extended(
            active.tools, lambda name: not_active(name, self.state, view, pool, self.fixed.names)
        )

    async def business(self) -> list[str]:
        """Names of the tools that are not the runtime's."""
        return [name for name in (await self.tools()).names if name not in self.fixed.names]

    async def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        result = await (await self.tools()).call(tool, arguments, self.context)
        for effect in result.effects:
            self.state.apply(effect)
        return result

    def next_turn(self) -> None:
        self.context = replace(self.context, turn=self.context.turn + 1)


@pytest.fixture
def view() -> SkillView:
    return SkillView(SKILLS)


@pytest.fixture
def pool() -> ToolPool:
    return ToolPool([get_weather, get_forecast, query_database, send_mail])


StartChat = Callable[..., Chat]


@pytest.fixture
def chat(view: SkillView) -> StartChat:
    def make(pool: ToolPool | None, **others: Any) -> Chat:
        return Chat(view, pool, **others)

    return make


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_pool, "_entries", {})
