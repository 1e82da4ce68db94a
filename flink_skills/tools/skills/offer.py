"""The tools that a model can call when a skill is loaded: those of the job's pool, and the bundled ones."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flink_skills.errors import ExecutionError, SkillsError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.profiles import COMMAND_TOOLS, TOOL_NAMES, brings_tools
from flink_skills.tools.state import ALL, LoadedSkill, SkillState, check_commands, load_effect

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView
    from flink_skills.skill import AgentSkill
    from flink_skills.tools.skills.skill_face import ToolServices

_MAX_NAMES = 20


class Brought(NamedTuple):
    """The bundled tools of a skill, with their names in this conversation, and notes for the model."""

    specs: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offer:
    """The names of the tools that a model can call with a skill, and of the missing ones.

    A tool is missing if the pool does not have it, or has another spelling.
    """

    tools: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The lines for the model."""
        found = []
        if self.tools:
            many = "1 tool" if len(self.tools) == 1 else f"{len(self.tools)} tools"
            found.append(f"With {many}: {', '.join(self.tools)}")
        if self.missing:
            found.append(f"Not available here: {', '.join(self.missing)}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return ``tools`` and ``missing_tools``, without empty ones."""
        return ({"tools": list(self.tools)} if self.tools else {}) | self.missing_json()

    def missing_json(self) -> dict[str, Any]:
        return {"missing_tools": list(self.missing)} if self.missing else {}


@dataclass(frozen=True)
class ToolNames:
    """The names of the tools of a loaded skill.

    ``own`` has the names of the bundled tools by those in the skill's files, ``pool`` the names of the job's pool, and
    ``taken`` those that the model has without a skill.
    """

    own: Mapping[str, str]
    pool: Collection[str]
    taken: Collection[str]

    def declared(self, section: Iterable[str]) -> tuple[str, ...]:
        """Return the names that a ``Tools:`` section means. An entry can mean a tool of the pool and a bundled one."""
        return _once(
            called for tool in section for called in self._called(tool, (self.own[tool],) if tool in self.own else ())
        )

    def selected(self, section: Iterable[str], loaded: LoadedSkill) -> tuple[str, ...]:
        """Return the selected tools. Without a selection, these are the declared ones, or else all bundled ones."""
        section = tuple(section)
        if loaded.tools is not None and loaded.tools != ALL:
            every = _once(self.meant(tool) for tool in loaded.tools)
        elif loaded.tools is None and any(tool in self.own for tool in section):
            every = self.declared(section)
        else:
            every = _once((*self.declared(section), *self.own.values()))
        return tuple(tool for tool in every if tool not in self.taken)

    def meant(self, asked: str) -> str:
        """Return the tool that a model means by ``asked``: a callable one, else the bundled one of that name."""
        if asked in self.own.values() or (asked in self.pool and asked not in self.taken):
            return asked
        return self.own.get(asked, asked)

    def _called(self, tool: str, own: tuple[str, ...]) -> tuple[str, ...]:
        return own if own and (tool not in self.pool or tool in self.taken) else (tool, *own)


async def tool_names(
    name: str, loaded: LoadedSkill, services: ToolServices, view: SkillView, context: ToolContext
) -> ToolNames:
    """Return the names of the tools of skill ``name``, loaded as ``loaded``."""
    pool, taken = await _pool_names(services, context), _taken(services)
    if not loaded.bundled:
        return ToolNames({}, pool, taken)
    # Models without bundled tools do not import these modules.
    from flink_skills.tools.dynamic.active import brought_names

    state = _state_with(name, loaded, services, context)
    names = brought_names(state, (skill for skill in state if skill in view), {*taken, *pool, *TOOL_NAMES})
    return ToolNames({tool: called for (skill, tool), called in names.items() if skill == name}, pool, taken)


async def describe_brought(name: str, services: ToolServices, view: SkillView, context: ToolContext) -> Brought:
    """Return the bundled tools of skill ``name``. If they cannot be read, the skill is used without them."""
    skill = view.get(name)
    if skill is None:
        return Brought()
    if not brings_tools(skill):
        return Brought()
    try:
        check_commands(view, context.skill_state, name)
    except ExecutionError as error:
        return Brought(notes=(f"The tools that it brings cannot be used: {error}",))
    if services.bundled is None or not services.settings.bundled:
        return Brought(notes=(await asyncio.to_thread(_off_note, skill, services),))
    try:
        await context.get_workspace()
        found = await services.bundled.describe(skill, context)
    except SkillsError as error:
        return Brought(notes=(f"The tools that it brings cannot be used: {error}",))
    from flink_skills.tools.dynamic.active import named_specs

    state = context.skill_state if context.skill_state is not None else SkillState()
    foreseen = services.pool.names if services.pool is not None else ()
    reserved = {*_taken(services), *await _pool_names(services, context), *foreseen, *TOOL_NAMES}
    specs = named_specs(name, found.specs, state, reserved, view.names)
    return Brought(specs, tuple(f"Of the tools that it brings: {text}" for text in found.problems))


def brought_note(name: str, services: ToolServices, view: SkillView, *, is_loaded: bool) -> str:
    """Return a note about the bundled tools that a list of the tools of skill ``name`` does not show."""
    skill = view.get(name)
    if skill is None or not brings_tools(skill):
        return ""
    if services.bundled is None or not services.settings.bundled:
        return f"({_off_note(skill, services)})"
    return "" if is_loaded else "(It also has its own tools: load it to see them.)"


def _off_note(skill: AgentSkill, services: ToolServices) -> str:
    """Return a note about the bundled tools of a skill that are not offered."""
    from flink_skills.tools.dynamic.bundled_checks import tool_places

    names = ", ".join(list(tool_places(skill))[:_MAX_NAMES])
    instead = ""
    if services.shell is not None and not COMMAND_TOOLS.isdisjoint(services.settings.tools):
        instead = " Run its files with commands instead."
    which = f" ({names})" if names else ""
    if not services.settings.bundled_off:
        return f"The tools that it brings{which} are not available: no sandbox is open here."
    return f"The tools that it brings{which} are not available: {services.settings.bundled_off}.{instead}"


async def offer_of(
    name: str, loaded: LoadedSkill, services: ToolServices, view: SkillView, context: ToolContext
) -> Offer:
    """Return the tools of skill ``name`` in the next request, if it is loaded as ``loaded``.

    In a job without a pool, a ``Tools:`` section activates nothing.
    """
    if services.pool is None and not loaded.bundled:
        return Offer()
    from flink_skills.tools.dynamic.active import active_names, active_tools

    pool = await services.pool.tools(context) if services.pool is not None else {}
    state = _state_with(name, loaded, services, context)
    bundled, taken = services.bundled if services.settings.bundled else None, _taken(services)
    there = active_tools(state, view, pool, bundled, taken).origin
    # Includes tools of the pool that another skill has activated.
    tools = tuple(tool for tool in active_names(state, view, pool, taken).get(name, ()) if tool in there)
    names = await tool_names(name, loaded, services, view, context)
    wanted = names.selected(view.declared_tools(name), loaded)
    own = names.own.values()
    return Offer(tools, tuple(tool for tool in wanted if tool not in there and tool not in own))


def _state_with(name: str, loaded: LoadedSkill, services: ToolServices, context: ToolContext) -> SkillState:
    """Return the skill state of the next request, with skill ``name`` loaded as ``loaded``."""
    state = SkillState.from_json(context.skill_state.to_json()) if context.skill_state is not None else SkillState()
    state.apply(load_effect(name, loaded.digest, docs=loaded.docs, tools=loaded.tools, bundled=loaded.bundled))
    state.evict(services.settings.max_loaded)
    return state


def _taken(services: ToolServices) -> set[str]:
    return {*services.settings.tools, *services.own_tools}


async def _pool_names(services: ToolServices, context: ToolContext) -> tuple[str, ...]:
    return tuple(await services.pool.tools(context)) if services.pool is not None else ()


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
