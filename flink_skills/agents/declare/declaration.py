"""Reads an agent's declarations: what its class says, as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.decorators import MCP_DEFAULTS
from flink_skills.agents.declare.kinds import check_attributes, check_kinds
from flink_skills.agents.declare.resource import ResourceDescriptor, ResourceName, SharedResources, declared_sources
from flink_skills.agents.declare.route import Route
from flink_skills.errors import ConfigError, PlanError, UnknownNameError
from flink_skills.hints import is_class, type_hints
from flink_skills.manager import SkillScope
from flink_skills.manager.scope import SOURCE_KINDS, check_carried
from flink_skills.prompts import Prompt
from flink_skills.resource import Mark, mark_of
from flink_skills.tools.base import Tool
from flink_skills.tools.dynamic.tool_pool import PoolItem, ToolPool, get_tool, tool_names
from flink_skills.tools.function import FunctionTool
from flink_skills.tools.profiles import TOOL_NAMES
from flink_skills.tools.toolset_base import BaseToolSet

if TYPE_CHECKING:
    from flink_skills.tools.mcp import McpToolSet

_SESSIONS = ("event", "key")
_NOT_SHARED = SharedResources()


@dataclass(frozen=True)
class DeclaredTool:
    """A function that the agent offers to models; a ``dynamic`` one only with a skill that names it. ``made`` is the
    tool itself where the agent gave one."""

    name: str
    description: str
    function: Callable[..., Any]
    dynamic: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)
    made: Tool | None = None

    @property
    def approve(self) -> bool:
        """True if each call needs an approval."""
        return bool(self.limits.get("approve")) if self.made is None else self.made.approve

    def make(self) -> Tool:
        """The tool. Raises :class:`ConfigError` for arguments that cannot be described to a model."""
        if self.made is not None:
            return self.made
        return FunctionTool(self.function, name=self.name, description=self.description or None, **self.limits)


@dataclass(frozen=True)
class DeclaredAgent:
    """An agent that models may call as a tool. ``manner`` is how: see :func:`agent_tool`."""

    description: str
    agent: Agent
    manner: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Declaration:
    """Everything that an agent declares, in the order of declaration.

    ``tools`` are its own functions, with those that are dynamic; ``toolsets`` give more that models always have, and
    ``pool`` is what its pools hold. ``connections``, ``setups`` and ``prompts`` include those that all agents of
    the job share. ``default_prompt`` is the prompt of a model that names none. ``route`` chooses the model of an event.
    """

    agent_id: str
    session: str
    output_type: Any
    state_type: Any
    skills: list[SkillScope] = field(default_factory=list)
    connections: dict[str, ResourceDescriptor] = field(default_factory=dict)
    setups: dict[str, ResourceDescriptor] = field(default_factory=dict)
    prompts: dict[str, Prompt] = field(default_factory=dict)
    tools: dict[str, DeclaredTool] = field(default_factory=dict)
    toolsets: list[BaseToolSet] = field(default_factory=list)
    pool: list[PoolItem] = field(default_factory=list)
    agents: dict[str, DeclaredAgent] = field(default_factory=dict)
    run_code: bool | None = None
    skill_filters: list[tuple[str, ...]] = field(default_factory=list)
    default_prompt: str | None = None
    route: Route | None = None

    @property
    def own_tools(self) -> dict[str, DeclaredTool]:
        """The tools that models have whatever is loaded, by name."""
        return {name: tool for name, tool in self.tools.items() if not tool.dynamic}

    @property
    def uses_sandbox(self) -> bool:
        """Whether any of its tools works in a workspace, or runs in the sandbox."""
        made = [tool.made for tool in self.tools.values() if tool.made is not None]
        given = [*made, *self.toolsets, *(item for item in self.pool if isinstance(item, (Tool, BaseToolSet)))]
        return any(item.uses_workspace for item in given)

    @property
    def all_toolsets(self) -> list[BaseToolSet]:
        """The tool sets, those of its pools included."""
        return [*self.toolsets, *(item for item in self.pool if isinstance(item, BaseToolSet))]

    def add_skills(self, arguments: Mapping[str, Any], place: str) -> None:
        """Add the sources of the agent, and its filter of skills.

        Args:
            arguments: ``paths``, ``resources`` and ``urls``, each a list of strings or of mappings with pins
                (``{"url": …, "sha256": …}``), ``skills``, a list of :class:`AgentSkill`, and ``skill_names``.
            place: The start of error messages.

        Raises:
            PlanError: An argument is unknown, or there is none, or ``skills`` cannot travel with the plan.
            ConfigError: ``skill_names`` is not a list of names.
        """
        sources = dict(arguments)
        filtered = self.add_skill_filter(sources.pop("skill_names", None), f"{place}: skill_names")
        made = sources.pop("skills", None)
        for key in sources:
            if key not in SOURCE_KINDS:
                known = [*SOURCE_KINDS, "skills", "skill_names"]
                raise PlanError(f"{place}: {UnknownNameError('argument', key, known)}")
        try:
            values: dict[str, Any] = {kind: declared_sources(kind, sources.get(kind) or ()) for kind in SOURCE_KINDS}
            scope = SkillScope(level="agent", **values, skills=() if made is None else made)
            check_carried(scope.skills, "skills")
        except ConfigError as error:
            raise PlanError(f"{place}: {error}") from error
        if not scope.is_empty:
            self.skills.append(scope)
        elif not filtered:
            raise PlanError(f"{place}: names no source; give paths=, resources=, urls= or skills=")

    def add_skill_filter(self, names: Any, place: str) -> bool:
        """Let the agent see no other skills than ``names``, and return whether there is such a filter (None: no).

        Each filter narrows what the others leave. Raises :class:`ConfigError` if ``names`` is not a list of names.
        """
        listed = name_list(names, place)
        if listed is not None:
            self.skill_filters.append(listed)
        return listed is not None

    def add_mcp_server(self, server: McpToolSet | None, place: str) -> None:
        """Add the tools of a server, and its skills if they are wanted. None: the server is disabled."""
        if server is not None:
            self.toolsets.append(server)
            try:
                source = server.skill_source()
            except ConfigError as error:
                raise PlanError(f"{place}: {error}") from error
            if source is not None:
                self.add_skills({"urls": [source]}, place)

    def add_agent(self, name: str, callee: DeclaredAgent, place: str) -> None:
        """Add an agent that is a tool. Raises :class:`PlanError` naming ``place``."""
        if name in self.tools or name in self.agents:
            raise PlanError(f"{place}: two tools are named {name!r}; rename one")
        for key in ("max_steps", "max_tokens"):
            most = callee.manner.get(key, 0)
            if not isinstance(most, int) or most < 0:
                raise PlanError(f"{place}: {key} is {most!r}; give a whole number, 0 for what the turn has left")
        self.agents[name] = callee

    def add_tool(self, item: PoolItem, place: str) -> None:
        """Add a tool that models always have; raises :class:`PlanError` naming ``place``."""
        if isinstance(item, BaseToolSet):
            self.toolsets.append(item)
            return
        tool = get_tool(item) if isinstance(item, str) else item if isinstance(item, Tool) else FunctionTool(item)
        if tool is None:
            unknown = UnknownNameError("registered tool", str(item), tool_names())
            raise PlanError(f"{place}: {unknown}: register it in the agent's module, or in YAML write 'module:name'")
        name = tool.spec.name
        if name in self.tools or name in self.agents:
            raise PlanError(f"{place}: two tools are named {name!r}; rename one")
        self.tools[name] = DeclaredTool(name, "", tool.call, made=tool)


def agent_id(agent: Agent) -> str:
    """The agent's name, or that of its class."""
    return agent.name or f"{type(agent).__module__}.{type(agent).__qualname__}"


def read_declaration(agent: Agent, shared: SharedResources = _NOT_SHARED) -> Declaration:
    """Return what ``agent`` declares, and the ``shared`` resources of its job.

    A resource of the agent takes precedence over a shared one of its name. ``agent.model`` may name a shared setup,
    which becomes the agent's first model.

    Raises:
        PlanError: A declaration is wrong. The message names the agent and the declaration.
    """
    id_ = agent_id(agent)
    check_kinds(agent, id_)
    if agent.session not in _SESSIONS:
        raise PlanError(f"agent {id_}: session={agent.session!r} is not known; write 'event' or 'key'")
    selector = agent.session_selector
    if selector is not None:
        if not callable(selector) and not (isinstance(selector, str) and selector):
            raise PlanError(f"agent {id_}: session_selector={selector!r}: give the name of a field, or a function")
        if agent.session != "key":
            raise PlanError(f"agent {id_}: session_selector needs session = 'key': each event is a conversation now")
    check_attributes(agent, Agent, id_)
    found = Declaration(id_, agent.session, agent.output_type, agent.state_type, run_code=agent.run_code)
    found.add_skill_filter(agent.skill_names, f"agent {id_}: skill_names")
    name_list(agent.approve_tools, f"agent {id_}: approve_tools")
    # A tool may be a method of that name.
    if agent.route is not None and mark_of(agent.route) is None:
        found.route = Route.parse(agent.route, f"agent {id_}: route")
    if not isinstance(agent.instructions, str) and mark_of(agent.instructions) is None:
        raise PlanError(f"agent {id_}: instructions must be a string, or a method with @prompt")
    if isinstance(agent.instructions, str) and agent.instructions:
        found.prompts["instructions"] = Prompt(system=agent.instructions)
    for name, mark in _marked(type(agent)):
        _READERS[mark.kind](found, agent, name, mark)
    declared = getattr(agent, "declare", None)
    if callable(declared):
        declared(found)
    found.default_prompt = "instructions" if "instructions" in found.prompts else next(iter(found.prompts), None)
    # A setup may be a method of that name.
    if agent.model is not None and mark_of(agent.model) is None:
        if agent.model in shared.setups and agent.model not in found.setups:
            found.setups[agent.model] = shared.setups[agent.model]
        else:
            found.setups.setdefault("model", ResourceDescriptor(clazz=_setup_class(agent.model)))
    found.connections = {**shared.connections, **found.connections}
    found.prompts = {**shared.prompts, **found.prompts}
    # The order counts: the first setup is the agent's default.
    found.setups = {**found.setups, **{name: of for name, of in shared.setups.items() if name not in found.setups}}
    return found


def _setup_class(model: str) -> str:
    return model if ":" in model or model.endswith(".setup") else f"{model}.setup"


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
    value = _given(agent, name, place)
    if not isinstance(value, ResourceDescriptor):
        raise PlanError(f"{place} returns {type(value).__name__}; return a ResourceDescriptor")
    return value


def _read_skills(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    descriptor = _descriptor(found, agent, name, mark)
    place = f"agent {found.agent_id}: @skills {name}()"
    if descriptor.clazz != ResourceName.SKILLS_MANAGER:
        raise PlanError(f"{place}: clazz is {descriptor.clazz!r}; use ResourceName.SKILLS_MANAGER")
    found.add_skills(descriptor.arguments, place)


def name_list(value: Any, place: str) -> tuple[str, ...] | None:
    """Return a list of names as a tuple, and None for None. Raises :class:`ConfigError` for anything else."""
    if value is None:
        return None
    names = None if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable) else tuple(value)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{place} is {value!r}; give a list of names")
    return names


def _read_connection(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    found.connections[name] = _descriptor(found, agent, name, mark)


def _read_setup(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    found.setups[name] = _descriptor(found, agent, name, mark)


def _read_prompt(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    place = f"agent {found.agent_id}: @prompt {name}()"
    value = _given(agent, name, place)
    if isinstance(value, str) and not isinstance(value, Prompt):
        value = Prompt(system=value)
    if not isinstance(value, Prompt):
        raise PlanError(f"{place} returns {type(value).__name__}; return a text or a Prompt")
    found.prompts[name] = value


def _read_tool(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    made = _made_tool(found, agent, name, mark)
    tool_name = made.spec.name if made is not None else mark.name or name
    if tool_name in found.tools:
        raise PlanError(f"agent {found.agent_id}: two tools are named {tool_name!r}; rename one with @tool(name=…)")
    found.tools[tool_name] = DeclaredTool(
        tool_name, mark.description, getattr(agent, name), mark.dynamic, mark.arguments, made
    )


def _made_tool(found: Declaration, agent: Agent, name: str, mark: Mark) -> Tool | None:
    """The tool of a method that says it returns one and takes no arguments; None where the method is the tool."""
    place = f"agent {found.agent_id}: @tool {name}()"
    method = getattr(agent, name)
    try:
        if inspect.signature(method).parameters:
            return None
        hint = type_hints(method).get("return")
    except (NameError, TypeError, ValueError):  # the method is a tool, which says so better
        return None
    if not (is_class(hint) and issubclass(hint, Tool)):
        return None
    value = _given(agent, name, place)
    if not isinstance(value, Tool):
        raise PlanError(f"{place} returns {type(value).__name__}, and says it returns a {hint.__name__}")
    if mark.name or mark.description or mark.arguments:
        raise PlanError(f"{place} returns a tool, which has a name, a description and limits: give them to the tool")
    return value


def _given(agent: Agent, name: str, place: str) -> Any:
    """Return what a marked method returns. Raises :class:`PlanError` if it has arguments or is asynchronous."""
    method = getattr(agent, name)
    try:
        inspect.signature(method).bind()
    except TypeError as error:
        raise PlanError(f"{place} is called without arguments: make it a @staticmethod ({error})") from error
    try:
        value = method()
    except TypeError as error:
        raise PlanError(f"{place} failed: TypeError: {error}") from error
    if inspect.iscoroutine(value):
        value.close()
        raise PlanError(f"{place} is asynchronous: make it a plain method")
    return value


def _read_tool_set(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    place = f"agent {found.agent_id}: @tool_set {name}()"
    value = _given(agent, name, place)
    items = value if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)) else [value]
    for number, item in enumerate(items, 1):
        where = f"{place}, item {number}"
        found.add_tool(pool_item(item, where), where)


_MCP_NAMES = {"tools": "tool_filter"}


def mcp_tool_set(name: str, server: Any, arguments: Mapping[str, Any], place: str) -> McpToolSet | None:
    """The tools of an MCP server that an agent declares, None if it is disabled.

    A mapping can have the arguments as well. Raises :class:`PlanError` naming ``place``.
    """
    try:
        # What it needs is an extra.
        from flink_skills.tools.mcp import McpToolSet
        from flink_skills.tools.mcp.server_mapping import TOOL_SET_KEYS, own_server

        if isinstance(server, ResourceDescriptor):
            if server.clazz != ResourceName.MCP_SERVER:
                raise ConfigError(f"a ResourceDescriptor has clazz {server.clazz!r}: write ResourceName.MCP_SERVER")
            server = {{"endpoint": "url"}.get(key, key): value for key, value in server.arguments.items()}
        if isinstance(server, Mapping):
            server = own_server(f"MCP server {name}", server)
            if server is None:
                return None
            said = {_MCP_NAMES.get(key, key): server.pop(key) for key in TOOL_SET_KEYS if key in server}
            twice = [key for key in said if arguments.get(key, MCP_DEFAULTS[key]) != MCP_DEFAULTS[key]]
            if twice:
                raise ConfigError(f"{', '.join(twice)}: given by @mcp_server and by the mapping; remove one of them")
            arguments = {**arguments, **said}
        return McpToolSet(server, name=name, **arguments)
    except (ConfigError, TypeError) as error:
        raise PlanError(f"{place}: {error}") from error


def _read_mcp_server(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    place = f"agent {found.agent_id}: @mcp_server {name}()"
    value = _given(agent, name, place)
    if isinstance(value, BaseToolSet):
        given = [key for key, said in mark.arguments.items() if said != MCP_DEFAULTS[key]]
        if given:
            raise PlanError(
                f"{place} returns a tool set: pass {', '.join(given)} to that tool set instead of @mcp_server"
            )
        found.toolsets.append(value)
        return
    found.add_mcp_server(mcp_tool_set(name, value, mark.arguments, place), place)


def _read_pool(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    place = f"agent {found.agent_id}: @tool_pool {name}()"
    value = _given(agent, name, place)
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise PlanError(f"{place} returns {type(value).__name__}; return a list of tools")
    # A dynamic tool that is in a pool, too, is there once.
    own = [getattr(agent, other) for other, of in _marked(type(agent)) if of.kind == "tool" and of.dynamic]
    for number, item in enumerate(value, 1):
        if item not in own:
            found.pool.append(pool_item(item, f"{place}, item {number}"))


def pool_item(value: Any, place: str) -> PoolItem:
    """Return an item of a pool as it is declared: an instance of a class of tools, other items as they are.

    Raises :class:`PlanError` naming ``place``.
    """
    if is_class(value) and issubclass(value, (Tool, BaseToolSet)):
        try:
            value = value()
        except Exception as error:  # the constructor is the user's
            raise PlanError(f"{place}: {value.__qualname__} cannot be made ({error}): give an instance") from error
    if isinstance(value, (Tool, BaseToolSet, str)):
        return value
    if not callable(value) or isinstance(value, type):
        raise PlanError(
            f"{place} is {value!r}; give a function, a Tool, a BaseToolSet or the name of a registered tool"
        )
    function: Callable[..., Any] = value
    return function


def declared_pool(found: Declaration) -> ToolPool | None:
    """The pool of an agent, not yet initialized; None if it declares none.

    Raises :class:`PlanError` for a tool that is named like one of the runtime's, of the agent's own, or of the pool.
    """
    dynamic = [tool.make() for tool in found.tools.values() if tool.dynamic]
    if not dynamic and not found.pool:
        return None
    try:
        pool = ToolPool([*dynamic, *found.pool], owner=found.agent_id)
    except ConfigError as error:
        raise PlanError(f"agent {found.agent_id}: {error}") from error
    for name in pool.names:
        whose = (
            "the runtime's"
            if name in TOOL_NAMES
            else "the agent's own"
            if name in found.own_tools or name in found.agents
            else ""
        )
        if whose:
            raise PlanError(
                f"agent {found.agent_id}: tool {name!r} of the pool is named like one of {whose}; rename it with "
                "@tool(name=…), or take it out of the pool"
            )
    return pool


def _read_agent(found: Declaration, agent: Agent, name: str, mark: Mark) -> None:
    place = f"agent {found.agent_id}: @agent_tool {name}()"
    callee = _given(agent, name, place)
    if is_class(callee) and issubclass(callee, Agent):
        try:
            callee = callee()
        except Exception as error:  # the constructor is the user's
            raise PlanError(f"{place}: {callee.__qualname__} cannot be made ({error}): return an instance") from error
    if not isinstance(callee, Agent):
        raise PlanError(f"{place} returns {type(callee).__name__}; return an Agent")
    doc = inspect.getdoc(getattr(type(agent), name)) or ""
    described = mark.description or doc.split("\n\n")[0]
    found.add_agent(mark.name or name, DeclaredAgent(described, callee, mark.arguments), place)


_READERS: dict[str, Callable[[Declaration, Agent, str, Mark], None]] = {
    "skills": _read_skills,
    "chat_model_connection": _read_connection,
    "chat_model_setup": _read_setup,
    "prompt": _read_prompt,
    "tool": _read_tool,
    "tool_set": _read_tool_set,
    "mcp_server": _read_mcp_server,
    "agent_tool": _read_agent,
    "tool_pool": _read_pool,
}
