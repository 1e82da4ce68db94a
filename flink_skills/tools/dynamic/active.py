"""The tools that loaded skills activate, and their names. The same state always yields the same tools.

The order depends on the names of the loaded skills, and not on their last use: that changes with every call, and would
change the beginning of each request. The names are those of the loads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from flink_skills.errors import SkillsError, near_misses
from flink_skills.tools.base import Tool
from flink_skills.tools.dynamic.bundled_names import brought_names
from flink_skills.tools.profiles import LOAD_SKILL, TOOL_NAMES, brings_tools
from flink_skills.tools.state import ALL, LoadedSkill, SkillState
from flink_skills.tools.tool_names import suggestion

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.dynamic.bundled import BundledTools

_MAX_NAMES = 40
_MAX_SKILLS = 5


@dataclass(frozen=True)
class Active:
    """The tools that a model has because of loaded skills.

    Attributes:
        origin: The skill that activates a tool, by the tool's name. If several do, the first by name.
        notes: Renamed and omitted tools. :meth:`ToolPool.note` logs each one time.
    """

    tools: tuple[Tool, ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def active_tools(
    state: SkillState,
    view: SkillView,
    pool_tools: Mapping[str, Tool],
    bundled: BundledTools | None,
    taken: Collection[str],
) -> Active:
    """Return the tools that are active with the skills loaded in ``state``.

    A skill activates the ``pool_tools`` that its selection names: its ``Tools:`` section, or the selection of the
    model, which can contain any tool of the pool. It activates the bundled tools that the selection names; all of them
    for "*", and if the section names none. If ``bundled`` is None, they are not offered.

    ``taken`` are the names of the runtime's and the agent's own tools, which no other tool gets. A bundled tool
    has the name that its load gave it (:func:`~flink_skills.tools.dynamic.bundled_names.named_specs`). A selection
    contains this name, or the tool's own one unless the job has a tool of that name.
    """
    notes: dict[str, None] = {}
    found: dict[str, Tool] = {}
    origin: dict[str, str] = {}
    for choice in _choices(state, view, pool_tools, taken, notes):
        if choice.name in found or (choice.spec is not None and bundled is None):
            continue
        found[choice.name] = (
            pool_tools[choice.name]
            if choice.spec is None or bundled is None
            else bundled.tool(choice.skill, choice.spec, choice.name)
        )
        origin[choice.name] = choice.skill
    return Active(tuple(found.values()), origin, tuple(notes))


def active_names(
    state: SkillState, view: SkillView, pool_tools: Collection[str], taken: Collection[str]
) -> dict[str, list[str]]:
    """Return the names of the tools that each skill loaded in ``state`` activates."""
    found: dict[str, list[str]] = {skill: [] for skill in state}
    for choice in _choices(state, view, pool_tools, taken, {}):
        if choice.name not in found[choice.skill]:
            found[choice.skill].append(choice.name)
    return found


def switched_off(name: str, state: SkillState, view: SkillView, off: str) -> str | None:
    """Return the answer to a call of a tool that a skill brings, and that is not offered for the reason ``off``.

    Return None if no skill of the view brings ``name``. Reads the files that bring tools.
    """
    from flink_skills.tools.dynamic.bundled_checks import tool_places

    for owner in sorted(view.names, key=lambda skill: skill not in state):
        skill = view.get(owner)
        if skill is None or skill.hidden or not brings_tools(skill):
            continue
        if name in tool_places(skill):
            return f"Tool {name!r} of skill {owner!r} is not available: {off}. Follow the skill without this tool."
    return None


def not_active(
    name: str,
    state: SkillState,
    view: SkillView,
    pool_tools: Collection[str],
    taken: Collection[str],
    *,
    off: str = "",
) -> str | None:
    """Return the answer to a model that calls ``name`` while it is not a tool: the reason and the fix.

    Only skills of the view are named. Reads the ``Tools:`` sections of all of them, so it may block. ``off`` is the
    reason why the tools that skills bring are not offered.

    >>> not_active("get_weather", SkillState(), view, ["get_weather"], ["load_skill"])
    "Tool 'get_weather' not found. Is the skill loaded? Skill weather has it: call load_skill with it first. …"
    """
    if name in TOOL_NAMES:
        hint = suggestion(name, taken)
        tools = ", ".join(list(taken)[:_MAX_NAMES])
        return f"This model does not have the tool {name!r}. {hint}{hint and ' '}Tools: {tools}"
    if off and (answer := switched_off(name, state, view, off)):
        return answer
    choices = list(_choices(state, view, pool_tools, taken, {}))
    known = list(dict.fromkeys((*taken, *(choice.name for choice in choices))))
    # A name of one skill's tool never refers to another skill's tool.
    owners = [state.tool_names[name][0]] if name in state.tool_names else state.names
    renamed = [
        choice.name for choice in choices if choice.spec and choice.spec["name"] == name and choice.skill in owners
    ]
    fix = f"It is called {' or '.join(renamed)}." if renamed else _fix(name, state, view, pool_tools, known)
    loaded = "" if fix.startswith("Use ") else " Is the skill loaded?"
    parts = [f"Tool {name!r} not found.{loaded}", fix]
    more = f" and {len(known) - _MAX_NAMES} more" if len(known) > _MAX_NAMES else ""
    parts.append(f"Tools: {', '.join(known[:_MAX_NAMES]) or 'none'}{more}")
    return " ".join(part for part in parts if part)


class _Choice(NamedTuple):
    """A tool that a loaded skill activates. ``spec`` is set for a bundled tool."""

    name: str
    skill: str
    spec: Mapping[str, Any] | None = None


def _choices(
    state: SkillState,
    view: SkillView,
    pool: Collection[str],
    taken: Collection[str],
    notes: dict[str, None],
) -> Iterator[_Choice]:
    """Yield the active tools. A tool that several skills name occurs several times."""
    loaded = {skill: state[skill] for skill in sorted(state) if skill in view}
    if not loaded:
        return  # as in most turns, and a pool can be large
    # Selections and active tools of the pool rename nothing.
    exposed = brought_names(state, loaded, {*taken, *pool, *TOOL_NAMES})
    for skill, of in loaded.items():
        own = {str(spec["name"]): spec for spec in of.bundled}
        names, all_brought = _selected(skill, of, own, view, notes)
        known = {*own, *(exposed[skill, tool] for tool in own), *TOOL_NAMES}
        # A section can mean the skill's own tool and the pool's. A selection has names that can be called.
        by_own_name = of.tools is None or of.tools == ALL
        for name in names:
            if name in taken:
                if name in pool:
                    notes[f"Tool {name!r} of the pool is left out: the agent has a tool of that name"] = None
            elif name in pool:
                yield _Choice(name, skill)
            elif pool and name not in known:
                notes[f"Tool {name!r} of skill {skill!r} could not be resolved: the pool does not have it"] = None
        for tool, spec in own.items():
            name = exposed[skill, tool]
            is_free = by_own_name or tool not in pool or tool in taken
            if all_brought or name in names or (tool in names and is_free):
                yield _Choice(name, skill, spec)
                if name != tool:
                    notes[f"Tool {tool!r} of skill {skill!r} is called {name!r}: its own name is taken or unfit"] = None


def _selected(
    skill: str, loaded: LoadedSkill, own: Collection[str], view: SkillView, notes: dict[str, None]
) -> tuple[tuple[str, ...], bool]:
    """Return the selected names of a skill, and whether all its bundled tools are selected."""
    if loaded.tools is not None and loaded.tools != ALL:
        return tuple(dict.fromkeys(loaded.tools)), False
    try:
        declared = tuple(view.declared_tools(skill))
    except SkillsError as error:
        notes[f"The tools of skill {skill!r} are not known: {error}"] = None
        return (), loaded.tools == ALL
    return declared, loaded.tools == ALL or not any(tool in declared for tool in own)


def _by_tool(view: SkillView, pool: Collection[str]) -> dict[str, list[str]]:
    """Return the skills in the menu that name each tool of the pool."""
    found: dict[str, list[str]] = {}
    for name in view.names if pool else ():
        skill = view.get(name)
        if skill is None or skill.hidden:
            continue
        try:
            declared = view.declared_tools(name)
        except SkillsError:
            continue  # this skill cannot be loaded either
        for tool in declared:
            if tool in pool:
                found.setdefault(tool, []).append(name)
    return found


def _fix(name: str, state: SkillState, view: SkillView, pool: Collection[str], known: Collection[str]) -> str:
    """Return how a model gets the tool ``name``, or the tool that it means."""
    by_tool = _by_tool(view, pool)
    if name in state.tool_names:
        # Another skill with such a tool is not named: a name has one meaning.
        owner = state.tool_names[name][0]
        found = view.get(owner)
        if owner not in state:
            return _load([owner], known) if found is not None and not found.hidden else ""
        brought = [owner] if found is not None and state.tool_names[name][1] in _own(state, owner) else []
    else:
        brought = [skill for skill in state if skill in view and name in _own(state, skill)]
    there = sorted({*(skill for skill in by_tool.get(name, ()) if skill in state), *brought})
    if there:
        how = (
            "call skill_select_tools with mode add"
            if "skill_select_tools" in known
            else "unload the skill and load it again"
        )
        return f"{_skills(there)} it, but it is not selected: {how}."
    if name in by_tool:
        return _load(by_tool[name], known)
    hint = suggestion(name, known)
    if hint.startswith("Use "):
        return hint
    near = near_misses(name, {*known, *by_tool})
    shown = [tool if tool in known else f"{tool} (of skill {by_tool[tool][0]})" for tool in near]
    return f"Did you mean {' or '.join(shown)}?" if shown else ""


def _own(state: SkillState, skill: str) -> list[str]:
    return [str(spec["name"]) for spec in state[skill].bundled]


def _load(skills: list[str], known: Collection[str]) -> str:
    load = next((tool for tool in (LOAD_SKILL, "skill_load") if tool in known), "")
    return f"{_skills(skills)} it" + (f": call {load} with it first." if load else ".")


def _skills(names: list[str]) -> str:
    shown = ", ".join(names[:_MAX_SKILLS])
    more = f" and {len(names) - _MAX_SKILLS} more" if len(names) > _MAX_SKILLS else ""
    return f"Skill {shown} has" if len(names) == 1 else f"Skills {shown}{more} have"
