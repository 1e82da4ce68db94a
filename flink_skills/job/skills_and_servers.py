"""Skills and MCP servers of a job as this host sees them, for checks and for the description of a job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.declaration import Declaration, read_declaration
from flink_skills.agents.open.generation import described_models, effective_view
from flink_skills.agents.open.opening import server_names, tool_inspectors
from flink_skills.agents.plan.name_checks import NamedAgent
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.errors import SkillsError, UnknownNameError
from flink_skills.execution.workspace.job_workspaces import scratch_workspaces
from flink_skills.manager import AgentSkillManager, SkillLock, SkillScope, SkillView
from flink_skills.manager.skill_checks import hiding_options
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import Diagnostic, Limits
from flink_skills.skill.skill_inspection import about_tokens
from flink_skills.tools import ShellRunner
from flink_skills.tools.skills.skill_face import ToolServices

if TYPE_CHECKING:
    from flink_skills.flink.job_graph import JobGraph
    from flink_skills.tools.mcp import McpToolSet


@dataclass(frozen=True)
class ModelSkills:
    """Skills and tools of a chat model of a job, and the size of the prompt of every event."""

    model: str
    label: str
    skills: tuple[str, ...]
    tools: tuple[str, ...]
    system_chars: int
    tool_chars: int
    tokens: int


@dataclass(frozen=True)
class VisibleSkills:
    """Skills of each model. ``names`` are the names of all skills, and ``unread_sources`` were not loaded.

    ``servers`` are the names of the MCP servers of plugins. None: not all sources were loaded.
    """

    models: tuple[ModelSkills, ...]
    names: frozenset[str]
    diagnostics: tuple[Diagnostic, ...] = ()
    unread_sources: tuple[str, ...] = ()
    servers: frozenset[str] | None = None


def visible_skills(plan: AgentPlan, graph: JobGraph, *, remote: bool) -> VisibleSkills:
    """Load the skills of a plan on this host. Without ``remote``, only those of paths and jars.

    Raises :class:`SourceError` for a source that cannot be read from here, :class:`SkillLockError` for skills that
    differ from ``skills.lock``, and :class:`UnknownNameError` for a name in ``skill_names`` that no source has, if all
    were read.
    """
    left = () if remote else tuple(url.shown for scope in plan.scopes for url in scope.urls)
    scopes = plan.scopes if remote else tuple(replace(scope, urls=()) for scope in plan.scopes)
    with _manager(plan, scopes, graph) as manager:
        skills, lock = manager.load_skills(), SkillConfig(plan.options).get(SkillOptions.LOCK)
        manager.check_sources()
        if lock and os.access(lock, os.R_OK):  # a missing file is reported with the host
            SkillLock.read(lock).check(skills, complete=not left)
        views = {}
        for model in plan.models:
            try:
                views[model.name] = effective_view(plan, manager, model)
            except UnknownNameError:
                if not left:
                    raise
                known = set(manager.known_names())
                views[model.name] = manager.view([name for name in plan.filter_of(model) or () if name in known])
        models = tuple(_model(plan, name, view, views) for name, view in views.items())
        names = frozenset(manager.known_names())
        servers = None if left else server_names(SkillConfig(plan.options), manager)
        return VisibleSkills(models, names, (*manager.diagnostics, *manager.inspect()), left, servers)


def with_visible_skills(named: NamedAgent, graph: JobGraph, *, remote: bool) -> NamedAgent:
    """Return an agent with the names of the skills that can be read here."""
    if not named.plan.scopes:
        return named
    try:
        visible = visible_skills(named.plan, graph, remote=remote)
    except SkillsError:
        return named  # reported with the skills
    bringers = [f"the unread source {', '.join(visible.unread_sources)}"] if visible.unread_sources else []
    if named.config.get(SkillOptions.REFRESH_INTERVAL):
        bringers.append("a refresh of the skills")
    if any(one.severity == "error" or one.left_out for one in visible.diagnostics):
        bringers.append("a skill that could not be read")
    return replace(named, skills=visible.names, skill_bringers=tuple(bringers), servers=visible.servers)


@contextlib.contextmanager
def _manager(plan: AgentPlan, scopes: Sequence[SkillScope], graph: JobGraph) -> Iterator[AgentSkillManager]:
    from flink_skills.flink.bridge import job_jars
    from flink_skills.flink.jar_resources import client_resources

    config = hiding_options(
        SkillConfig({key: value for key, value in plan.options.items() if key != SkillOptions.LOCK.key})
    )
    jars = job_jars(graph.env) if plan.resources else []
    with (
        client_resources(jars, plan.resources, Limits.from_config(config)) as resources,
        # Tool sets of the agent are not open here.
        AgentSkillManager.from_scopes(
            scopes, config=config, resource_paths=resources, tools=None, inspectors=tool_inspectors(plan, config)
        ) as manager,
    ):
        yield manager


def _model(plan: AgentPlan, name: str, view: SkillView, views: Mapping[str, SkillView]) -> ModelSkills:
    model = described_models(plan, views).model(name)
    setup = next(of.setup for of in plan.models if of.name == name)
    specs = model.tools.specs()
    tools = "".join(_travelling(spec) for spec in specs)
    return ModelSkills(
        name,
        setup.label,
        tuple(sorted(view.names)),
        tuple(spec.name for spec in specs),
        len(model.system),
        len(tools),
        about_tokens(model.system + tools),
    )


def _travelling(spec: Any) -> str:
    return json.dumps({"name": spec.name, "description": spec.description, "parameters": spec.parameters})


@dataclass(frozen=True)
class ServerState:
    """An MCP server. ``problem`` is the reason why it cannot be reached; None if it can or was not tried."""

    name: str
    shown: str
    required: bool
    problem: str | None = None

    @property
    def title(self) -> str:
        """The name and the program or address."""
        return f"MCP server {self.name} ({self.shown})"


def declared_servers(agent: Agent) -> list[ServerState]:
    """Return the servers of an agent and of its sub-agents, without connecting to them.

    A ``problem`` is a program that is missing on this host.
    """
    servers = _servers(read_declaration(agent))
    return [ServerState(server.name, server.shown, server.required, _missing(server)) for server in servers]


def _missing(server: McpToolSet) -> str | None:
    program = server.program
    if program is None or shutil.which(program) is not None:
        return None
    return f"the MCP server {server.name!r}: there is no program {program!r} on this machine"


def reached_servers(tree: Sequence[NamedAgent]) -> list[ServerState]:
    """Connect to each server of an agent and of its sub-agents, and return the outcomes.

    The tool sets in ``tree`` then have their tools. Programs run in the sandbox for commands of this host.
    """
    servers = [server for named in tree for server in _own_servers(named.declared)]
    return asyncio.run(_reached(servers, tree[0].plan)) if servers else []


async def _reached(servers: list[McpToolSet], plan: AgentPlan) -> list[ServerState]:
    config = SkillConfig(plan.options)
    services = ToolServices(SkillView([]), config)
    if not plan.runs_commands or not any(server.uses_workspace for server in servers):
        return [await _outcome(server, services) for server in servers]
    try:
        with scratch_workspaces(config) as workspaces:
            shell = await ShellRunner.start(config, workspaces)
            try:
                return [await _outcome(server, replace(services, shell=shell)) for server in servers]
            finally:
                await shell.close()
    except SkillsError as error:
        return [ServerState(server.name, server.shown, server.required, str(error)) for server in servers]


async def _outcome(server: McpToolSet, services: ToolServices) -> ServerState:
    is_required, server.required = server.required, True
    problem = None
    server.attach(services)
    try:
        await server.initialize()
    except SkillsError as error:
        problem = str(error)
    finally:
        await server.close()
    return ServerState(server.name, server.shown, is_required, problem)


def _own_servers(declared: Declaration) -> Iterator[McpToolSet]:
    # Most agents have no servers, and the package mcp is an extra.
    for toolset in declared.all_toolsets:
        if type(toolset).__module__.startswith("flink_skills.tools.mcp"):
            yield toolset  # type: ignore[misc]


def _servers(declared: Declaration) -> Iterator[McpToolSet]:
    yield from _own_servers(declared)
    for callee in declared.agents.values():
        yield from _servers(read_declaration(callee.agent))
