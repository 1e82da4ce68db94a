"""MCP servers of an agent: declared, and as far as they can be reached from here."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.declaration import Declaration, read_declaration
from flink_skills.agents.plan.name_checks import NamedAgent
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.errors import SkillsError
from flink_skills.execution.workspace.scratch import scratch_workspaces
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools import ShellRunner
from flink_skills.tools.services import ToolServices

if TYPE_CHECKING:
    from flink_skills.tools.mcp import McpToolSet

__all__ = ["ServerHere", "declared_servers", "reached_servers"]


@dataclass(frozen=True)
class ServerHere:
    """An MCP server. ``problem`` is the reason why it cannot be reached; None if it can or was not tried."""

    name: str
    shown: str
    required: bool
    problem: str | None = None

    @property
    def title(self) -> str:
        """The name and the program or address."""
        return f"MCP server {self.name} ({self.shown})"


def declared_servers(agent: Agent) -> list[ServerHere]:
    """Return the servers of an agent and of the agents that are its tools, without connecting to them.

    A ``problem`` is a program that this machine does not have.
    """
    return [ServerHere(of.name, of.shown, of.required, _missing(of)) for of in _servers(read_declaration(agent))]


def _missing(server: McpToolSet) -> str | None:
    program = server.program
    if program is None or shutil.which(program) is not None:
        return None
    return f"the MCP server {server.name!r}: there is no program {program!r} on this machine"


def reached_servers(tree: Sequence[NamedAgent]) -> list[ServerHere]:
    """Connect to each server of an agent and of the agents that are its tools, and return the outcomes.

    The tool sets in ``tree`` know their tools afterwards. Programs run in the sandbox of commands that this machine
    has.
    """
    servers = [server for named in tree for server in _own_servers(named.declared)]
    return asyncio.run(_reached(servers, tree[0].plan)) if servers else []


async def _reached(servers: list[McpToolSet], plan: AgentPlan) -> list[ServerHere]:
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
        return [ServerHere(of.name, of.shown, of.required, str(error)) for of in servers]


async def _outcome(server: McpToolSet, services: ToolServices) -> ServerHere:
    is_required, server.required = server.required, True
    problem = None
    server.attach(services)
    try:
        await server.initialize()
    except SkillsError as error:
        problem = str(error)
    finally:
        await server.close()
    return ServerHere(server.name, server.shown, is_required, problem)


def _own_servers(declared: Declaration) -> Iterator[McpToolSet]:
    # Most agents have no servers, and the package mcp is an extra.
    for toolset in declared.all_toolsets:
        if type(toolset).__module__.startswith("flink_skills.tools.mcp"):
            yield toolset  # type: ignore[misc]


def _servers(declared: Declaration) -> Iterator[McpToolSet]:
    yield from _own_servers(declared)
    for callee in declared.agents.values():
        yield from _servers(read_declaration(callee.agent))
