"""The tools that loaded skills activate, and their names. The same state always yields the same tools.

The order depends on the names of the loaded skills, and not on their last use: that changes with every call, and would
change the beginning of each request. The names are those of the loads.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from flink_skills.errors import SkillsError, near_misses
from flink_skills.tools.base import Tool
from flink_skills.tools.profiles import LOAD_SKILL, TOOL_NAMES, brings_tools
from flink_skills.tools.state import ALL, MAX_TOOL_NAMES, LoadedSkill, SkillState
from flink_skills.tools.tool_names import suggestion

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.dynamic.bundled import BundledTools


_MAX_LENGTH = 64
_DIGITS = 6
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def exposed_name(skill: str, tool: str) -> str:
    """Return ``<skill>_<tool>`` in a form that all providers accept. A changed name gets a few digits to be unique.

    >>> exposed_name("log-triage", "run"), exposed_name("log triage", "run")
    ('log-triage_run', 'log_triage_run_add826')
    """
    wanted = f"{skill}_{tool}"
    return wanted if _fits(wanted) else _with_digits(skill, tool)


def named_specs(
    skill: str,
    specs: Sequence[Mapping[str, Any]],
    state: SkillState,
    reserved: Collection[str],
    others: Iterable[str] = (),
) -> tuple[dict[str, Any], ...]:
    """Return the ``specs`` of the tools of ``skill``, each with its name ``exposed`` from this load on.

    A tool keeps the name that it had in the conversation of ``state``. Any other gets a name that is not in
    ``reserved``, that no other tool had in the conversation, and that does not start like the prefixed names of
    ``others``, the other skills: a model would take the tool for theirs.

    >>> named_specs("geo", [{"name": "find"}, {"name": "run"}], SkillState(), ["run"])
    ({'name': 'find', 'exposed': 'find'}, {'name': 'run', 'exposed': 'geo_run'})
    """
    before = {of: name for name, of in state.tool_names.items() if name not in reserved}
    now = brought_names(state, (other for other in state if other != skill), reserved)
    used = {*reserved, *state.tool_names, *now.values()}
    prefixes = tuple(f"{other}_" for other in others if other != skill)
    tools = [str(spec["name"]) for spec in specs]
    chosen = {tool: before[skill, tool] for tool in tools if (skill, tool) in before}
    # A name that the state cannot store has to be unique without it.
    first = 0 if len(state.tool_names) + len(tools) <= MAX_TOOL_NAMES else 2
    for tool in tools if first == 0 else ():
        # Own names come first, so that no other tool of the skill takes one.
        if tool not in chosen and tool not in used and _fits(tool) and not tool.startswith(prefixes):
            chosen[tool] = tool
            used.add(tool)
    for tool in tools:
        if tool not in chosen:
            forms = itertools.islice(_forms(skill, tool), max(first, 1), None)
            chosen[tool] = next(form for form in forms if form not in used)
            used.add(chosen[tool])
    return tuple({**spec, "exposed": chosen[tool]} for tool, spec in zip(tools, specs, strict=True))


def brought_names(state: SkillState, skills: Iterable[str], reserved: Collection[str]) -> dict[tuple[str, str], str]:
    """Return the names of the tools of the loaded ``skills``, by skill and tool.

    A tool has the name of its load. If the job has a tool of that name since then, or if the load set none (a session
    of an earlier release), it has a name that is not in ``reserved`` and that no other tool has.
    """
    brought = {
        (skill, str(spec["name"])): spec.get("exposed") for skill in sorted(skills) for spec in state[skill].bundled
    }
    found: dict[tuple[str, str], str] = {}
    used = {*reserved}
    for of, name in brought.items():
        if isinstance(name, str) and name not in used and _fits(name) and state.tool_names.get(name, of) == of:
            found[of] = name
            used.add(name)
    used.update(state.tool_names)
    for of, name in brought.items():
        if of not in found:
            forms = itertools.islice(_forms(*of), 0 if name is None else 1, None)
            found[of] = next(form for form in forms if _fits(form) and form not in used)
            used.add(found[of])
    return found


def _forms(skill: str, tool: str) -> Iterator[str]:
    """Yield the possible names of a tool, the plainest first."""
    yield tool
    yield exposed_name(skill, tool)
    for salt in itertools.count():
        yield _with_digits(skill, tool, salt)


def _with_digits(skill: str, tool: str, salt: int = 0) -> str:
    clean = _NOT_IN_NAMES.sub("_", f"{skill}_{tool}")
    digits = hashlib.sha256(f"{skill}\0{tool}{f'{chr(0)}{salt}' if salt else ''}".encode()).hexdigest()[:_DIGITS]
    return f"{clean[: _MAX_LENGTH - _DIGITS - 1]}_{digits}"


def _fits(name: str) -> bool:
    return 0 < len(name) <= _MAX_LENGTH and not _NOT_IN_NAMES.search(name)


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
    has the name that its load gave it (:func:`~flink_skills.tools.dynamic.active.named_specs`). A selection
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
