"""Reads an agent's declarations: what its class says, as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from flink_skills.agents.agent import Agent
from flink_skills.agents.decorators import Mark, mark_of
from flink_skills.agents.prompt import Prompt
from flink_skills.agents.resource import ResourceDescriptor, ResourceName
from flink_skills.errors import ConfigError, PlanError, UnknownNameError
from flink_skills.manager import SkillScope
from flink_skills.manager.scope import SOURCE_KINDS
from flink_skills.sources import SourceSpec

__all__ = ["Declaration", "DeclaredTool", "declared_sources", "read_declaration", "skill_scope"]

_SESSIONS = ("event", "key")


@dataclass(frozen=True)
class DeclaredTool:
    """A function that the agent offers to models."""

    name: str
    description: str
    function: Callable[..., Any]


@dataclass
class Declaration:
    """Everything that an agent declares, in the order of declaration."""

    agent_id: str
    session: str
    output_type: Any
    state_type: Any
    skills: list[SkillScope] = field(default_factory=list)
    connections: dict[str, ResourceDescriptor] = field(default_factory=dict)
    setups: dict[str, ResourceDescriptor] = field(default_factory=dict)
    prompts: dict[str, Prompt] = field(default_factory=dict)
    tools: dict[str, DeclaredTool] = field(default_factory=dict)


def read_declaration(agent: Agent) -> Declaration:
    """What ``agent`` declares. Raises :class:`PlanError` naming the agent, the declaration and the mend."""
    agent_id = agent.name or f"{type(agent).__module__}.{type(agent).__qualname__}"
    if agent.session not in _SESSIONS:
        raise PlanError(f"agent {agent_id}: session={agent.session!r} is not known; write 'event' or 'key'")
    found = Declaration(agent_id, agent.session, agent.output_type, agent.state_type)
    if not isinstance(agent.instructions, str) and mark_of(agent.instructions) is None:
        raise PlanError(f"agent {agent_id}: instructions must be a text, or a method with @prompt")
    if isinstance(agent.instructions, str) and agent.instructions:
        found.prompts["instructions"] = Prompt(system=agent.instructions)
    for name, mark in _marked(type(agent)):
        _READERS[mark.kind](found, agent, name, mark)
    declared = getattr(agent, "declare", None)
    if callable(declared):
        declared(found)
    if agent.model is not None:
        found.setups.setdefault("model", ResourceDescriptor(clazz=_setup_class(agent.model)))
    return found


def _setup_class(model: str) -> str:
    return ResourceName.ChatModel.OFFLINE_SETUP if model == "offline" else model


def _marked(cls: type) -> list[tuple[str, Mark]]:
    """Marked attributes of a class in order of declaration, base classes first, overridden ones once."""
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        for name in vars(base):
            names.setdefault(name)
    marked = []
    for name in names:
        attribute = inspect.getattr_static(cls, name)
        mark = mark_of(attribute)
        if mark is not None:
            marked.append((name, mark))
    return marked


def _descriptor(found: Declaration, agent: Agent, name: str, mark: Mark) -> ResourceDescriptor:
    place = f"agent {found.agent_id}: @{mark.kind} {name}()"
    try:
        value = getattr(agent, name)()
    except TypeError as error:
        raise PlanError(f"{place} is called without arguments: make it a @staticmethod ({error})") from error
    if not isinstance(value, ResourceDescriptor):
        raise PlanError(f"{place} returns {type(value).__name__}; return a ResourceDescriptor")
    return value


def _read_skills(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    descriptor = _descriptor(found, agent, name, mark)
    place = f"agent {found.agent_id}: @skills {name}()"
    if descriptor.clazz != ResourceName.SKILLS_MANAGER:
        raise PlanError(f"{place}: clazz is {descriptor.clazz!r}; use ResourceName.SKILLS_MANAGER")
    found.skills.append(skill_scope("agent", dict(descriptor.arguments), place))


def skill_scope(level: str, arguments: dict[str, Any], place: str) -> SkillScope:
    """A scope from ``paths``, ``resources`` and ``urls``: at least one of them, each a list of texts or of mappings
    with pins (``{"url": …, "sha256": …}``)."""
    for key in arguments:
        if key not in SOURCE_KINDS:
            raise PlanError(f"{place}: {UnknownNameError('argument', key, SOURCE_KINDS)}")
    values: dict[str, tuple[str, ...]] = {}
    for kind in SOURCE_KINDS:
        try:
            values[kind] = declared_sources(kind, arguments.get(kind) or ())
        except ConfigError as error:
            raise PlanError(f"{place}: {error}") from error
    if not any(values.values()):
        raise PlanError(f"{place}: names no source; give paths=, resources= or urls=")
    return SkillScope(level="agent" if level == "agent" else "job", **values)


def declared_sources(kind: str, value: Any) -> tuple[str, ...]:
    """The sources of one kind (``"paths"``, ``"resources"`` or ``"urls"``) as texts: ``value`` is one or a list of
    texts, of mappings with pins (``{"url": …, "sha256": …}``) or of :class:`SourceSpec`.

    Raises :class:`ConfigError`, which shows no value: it may hold a credential.
    """
    items = (value,) if isinstance(value, (str, Mapping, SourceSpec, PurePath)) else value
    if not isinstance(items, Sequence):
        raise ConfigError(f"{kind}: a {type(value).__name__} is no source; give a list of texts or mappings")
    one = SOURCE_KINDS[kind]
    return tuple(str(SourceSpec.parse(one, str(item) if isinstance(item, PurePath) else item)) for item in items)


def _read_connection(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    found.connections[name] = _descriptor(found, agent, name, mark)


def _read_setup(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    found.setups[name] = _descriptor(found, agent, name, mark)


def _read_prompt(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    value = getattr(agent, name)()
    if isinstance(value, str):
        value = Prompt(system=value)
    if not isinstance(value, Prompt):
        raise PlanError(
            f"agent {found.agent_id}: @prompt {name}() returns {type(value).__name__}; return a text or a Prompt"
        )
    found.prompts[name] = value


def _read_tool(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    tool_name = mark.name or name
    if tool_name in found.tools:
        raise PlanError(f"agent {found.agent_id}: two tools are named {tool_name!r}; rename one with @tool(name=…)")
    found.tools[tool_name] = DeclaredTool(tool_name, mark.description, getattr(agent, name))


_READERS: dict[str, Callable[[Declaration, Agent, str, Mark], None]] = {
    "skills": _read_skills,
    "chat_model_connection": _read_connection,
    "chat_model_setup": _read_setup,
    "prompt": _read_prompt,
    "tool": _read_tool,
}
