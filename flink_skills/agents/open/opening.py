"""Opens the skills of an agent where it runs: load, check, inspect, refresh, and log each finding once."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.declaration import Declaration
from flink_skills.agents.open.generation import Generation, GenerationParts, effective_names
from flink_skills.agents.plan.name_checks import NamedAgent
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.plan.sealing import public_scope
from flink_skills.errors import ConfigError, SkillsError, counted
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.manager import AgentSkillManager, Refreshed, SkillLock
from flink_skills.manager.skill_checks import Inspector
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import Diagnostic
from flink_skills.telemetry import PointEvent, Telemetry
from flink_skills.tools import ShellRunner
from flink_skills.tools.skills.command_environment import command_environment
from flink_skills.tools.toolset_base import BaseToolSet

_log = logging.getLogger("flink_skills.runtime")
_MAX_NAMES = 20
_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO}


def open_skills(
    plan: AgentPlan,
    agent: Agent,
    declared: Declaration,
    resource_paths: Mapping[str, Sequence[str]] | None,
    store_dir: str | None,
    *,
    opened: float | None = None,
) -> AgentSkillManager:
    """The skills of ``plan``, loaded and inspected. Blocks for as long as the sources take.

    Raises :class:`SkillsError` for a source that cannot be read, a name in
    ``skill_names`` that no source has, skills that ``skills.lock`` does not name, with ``skills.strict`` for every
    error in the skills, and with ``skills.unsupported`` = ``refuse`` for every skill that needs what the job does not
    have, all of them at once.
    """
    config = SkillConfig(plan.options)
    for url in (url for scope in plan.scopes for url in scope.urls):
        # Otherwise each restart would approve the current files of the server.
        names = [one for name, value in parse_qsl(url.settings) if name == "scripts" for one in value.split(",")]
        if not all("@sha256:" in name for name in names):
            raise ConfigError(
                f"skill source {url.shown}: scripts are approved without a digest, because the client did not read the "
                "source at submit. Write NAME@sha256:DIGEST, as 'approval' in the lock file of 'flink-skills lock'."
            )
    manager = AgentSkillManager.from_scopes(
        plan.scopes,
        config=config,
        resource_paths=resource_paths,
        store_dir=store_dir,
        # As the client embedded it, else the manager reads it here.
        lock=SkillLock.from_json(plan.lock) if plan.lock is not None else None,
        opened=opened,
        environment=command_environment(config),
        inspectors=tool_inspectors(plan, config),
        tools=_tools_of(NamedAgent(plan, agent, declared)),
    )
    try:
        manager.load_skills()
        manager.check_sources()
        manager.inspect(effective_names(plan, manager))
    except BaseException:
        manager.close()
        raise
    return manager


def plugin_tool_sets(plan: AgentPlan, manager: AgentSkillManager, shell: ShellRunner | None) -> list[BaseToolSet]:
    """Return the tools of the MCP servers of plugins that the job starts for the agent. Blocks.

    These are the servers in ``skills.plugins.servers`` whose plugin has a skill that a model of the agent may load, or
    has no skills.

    Raises:
        ConfigError: A name belongs to servers of several plugins, or the job does not grant what a server needs.
    """
    config = SkillConfig(plan.options)
    allowed: tuple[str, ...] = config.get(SkillOptions.PLUGINS_SERVERS)
    if not allowed:
        return []
    from flink_skills.tools.mcp.plugin_servers import plugin_tool_set  # its package is an extra

    names, skills = set(effective_names(plan, manager)), manager.get_skills()
    hidden = {skill.plugin for skill in skills} - {skill.plugin for skill in skills if skill.name in names}
    servers = manager.plugin_servers()
    found = []
    for name in dict.fromkeys(allowed):
        same = [server for server in servers if server.full_name == name]
        if len(same) > 1:
            raise ConfigError(
                f"option {SkillOptions.PLUGINS_SERVERS.key}: {name!r} is a server of several plugins "
                f"({', '.join(server.path for server in same)}). Remove the sources of the others"
            )
        found += [plugin_tool_set(server, config, shell) for server in same if server.plugin not in hidden]
    return list(found)


def server_names(config: SkillConfig, manager: AgentSkillManager) -> frozenset[str]:
    """Return the full names of the MCP servers of plugins, if options contain such names."""
    if not config.get(SkillOptions.PLUGINS_SERVERS) and not config.family(SkillOptions.PLUGINS_ENV):
        return frozenset()
    return frozenset(server.full_name for server in manager.plugin_servers())


def tool_inspectors(plan: AgentPlan, config: SkillConfig) -> list[Inspector]:
    """Return the check of tools that skills bring. It reports the reason if no model of the agent is offered them."""
    # Not above: it parses Python and JSON.
    from flink_skills.tools.dynamic import inspect_tools

    return [partial(inspect_tools, off=plan.bundled_off(config))]


def _tools_of(named: NamedAgent) -> set[str] | None:
    """Return the names of all tools that models of an agent can have. None with tool sets: these list theirs later."""
    if named.declared.all_toolsets:
        return None
    return {*named.tool_names(), *(name for of, _ in named.plan.settings(named.config) for name in of.tools)}


def log_skills(
    plan: AgentPlan, manager: AgentSkillManager, telemetry: Telemetry, *, isolation: str, quiet: bool = False
) -> None:
    """One line that says what was opened, then what there is to say about the skills; at debug level if ``quiet``.

    Observers are told the same, unless ``quiet``.
    """
    summary = manager.summary()
    shown = [public_scope(scope) for scope in plan.scopes]
    sources = [f"{spec.kind} {spec}" for scope in shown for spec in scope.sources]
    sources += [f"code {skill.name}" for scope in shown for skill in scope.skills]
    _log.log(
        logging.DEBUG if quiet else logging.INFO,
        "agent %s is open: %s from %s (%d failed)%s; %s, %s, %s%s; isolation: %s; sources: %s; skills: %s",
        plan.agent_id,
        counted(summary["skills"], "skill"),
        counted(summary["sources"], "source"),
        summary["failed_sources"],
        f", {summary['left_out']} left out by limits" if summary["left_out"] else "",
        counted(summary["errors"], "error"),
        counted(summary["warnings"], "warning"),
        counted(summary["infos"], "info"),
        "".join(f", {code} x {count}" for code, count in sorted(summary["codes"].items())),
        isolation,
        _some(sources),
        _some([skill.name for skill in manager.get_skills()]),
    )
    if telemetry and not quiet:
        counts = {name: summary[name] for name in ("skills", "failed_sources", "errors", "warnings", "infos")}
        tell(telemetry, "open", plan, isolation=isolation, sources=sources, generation=manager.generation, **counts)
    filters = dict.fromkeys(plan.filter_of(model) for model in plan.models or (None,))
    menus = [diagnostic for names in filters for diagnostic in manager.menu_diagnostics(names)]
    for diagnostic in dict.fromkeys([*manager.diagnostics, *menus]):
        log_diagnostic(diagnostic, quiet=quiet)
        if telemetry and not quiet:
            tell(telemetry, "diagnostic", plan, **diagnostic.to_json())


def tell(telemetry: Telemetry, kind: str, plan: AgentPlan, **attributes: Any) -> None:
    """Tell observers of something that happens to an agent outside of turns."""
    telemetry.emitted(PointEvent(kind, {"agent": plan.agent_id, **attributes}, time.time()))


def _some(names: Sequence[str]) -> str:
    """Names for one line of a log: not hundreds of them."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return (", ".join(names[:_MAX_NAMES]) or "none") + more


def log_isolation(plan: AgentPlan, shell: ShellRunner, *, quiet: bool = False) -> None:
    """Log what isolates commands, as a warning where files are open to them; at debug level if ``quiet``."""
    level = logging.INFO if shell.level >= IsolationLevel.LANDLOCK else logging.WARNING
    _log.log(logging.DEBUG if quiet else level, "agent %s: %s", plan.agent_id, shell.report.summary())
    for remark in shell.remarks():
        _log.log(logging.DEBUG if quiet else logging.WARNING, "agent %s: %s", plan.agent_id, remark)
    if shell.level < IsolationLevel.REMOTE:
        for remark in shell.workspaces.remarks:
            _log.log(logging.DEBUG if quiet else logging.INFO, "agent %s: %s", plan.agent_id, remark)


def log_diagnostic(diagnostic: Diagnostic, *, quiet: bool = False) -> None:
    """Log one finding at its own level."""
    level = logging.DEBUG if quiet else _LEVELS.get(diagnostic.severity, logging.INFO)
    _log.log(level, "%s", diagnostic)


@dataclass
class Figures:
    """Number of times that the sources of an agent were read again, and of failures."""

    refreshes: int = 0
    failures: int = 0


class LiveSkills:
    """The skills of an open agent.

    Args:
        manager: The loaded skills.
        parts: What all generations of the agent have in common.
        telemetry: Receives changes.
        changed: Called after each refresh.
        quiet: Do not report changes to observers, because another process of this machine does.

    Attributes:
        generation: Models, skills and tools for turns that begin now. A turn takes it once, when it begins.
    """

    def __init__(
        self,
        manager: AgentSkillManager,
        parts: GenerationParts,
        telemetry: Telemetry,
        changed: Callable[[], None],
        *,
        quiet: bool,
    ) -> None:
        self.manager = manager
        self.figures = Figures()
        self._parts = parts
        self._telemetry = telemetry
        self._changed = changed
        self._quiet = quiet
        self._refreshing = asyncio.Lock()
        self.generation = Generation.of(parts, manager)

    async def refresh(self) -> bool:
        """Read the sources again, in a thread. Return True if turns that begin from now on use other skills.

        A failure raises no exception: it is logged and counted, and the skills stay as they are.
        """
        agent = self._parts.plan.agent_id
        async with self._refreshing:
            self.figures.refreshes += 1
            before = self.generation
            try:
                self.generation, changes, new = await asyncio.to_thread(self._refreshed)
            except SkillsError as error:
                self.figures.failures += 1
                _log.error("agent %s keeps the skills that it has: %s", agent, error)
            except Exception:  # the sources of third parties raise anything
                self.figures.failures += 1
                _log.exception("agent %s keeps the skills that it has: refreshing them failed", agent)
            else:
                self.figures.failures += bool(self.manager.failures)
                self._report(changes, new)
            self._changed()
            return self.generation is not before

    async def refresh_every(self, interval: float) -> None:
        """Refresh at intervals of about ``interval`` seconds and after reports of sources, until it is cancelled."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def reported() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(changed.set)

        end = await asyncio.to_thread(self.manager.watch, reported)
        try:
            while True:
                # Spread, so that the workers of a cluster do not ask a server at the same time.
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(changed.wait(), interval * random.uniform(0.9, 1.1))
                changed.clear()
                await self.refresh()
        finally:
            end()

    def _refreshed(self) -> tuple[Generation, Refreshed | None, list[Diagnostic]]:
        """Return the generation after a refresh (the same one if nothing changed), the changes, and new diagnostics.

        A diagnostic that was reported before is not new, for example that of a source that continues to fail.
        """
        told = set(self.manager.diagnostics)
        changes = self.manager.refresh()
        generation = self.generation
        # Also if an earlier refresh changed the skills, and a model could not be opened with them.
        if self.manager.generation != generation.number:
            self.manager.inspect(effective_names(self._parts.plan, self.manager))
            generation = Generation.of(self._parts, self.manager)
        return generation, changes, [found for found in self.manager.diagnostics if found not in told]

    def _report(self, changes: Refreshed | None, new: Sequence[Diagnostic]) -> None:
        plan = self._parts.plan
        if changes is not None:
            changed = {"added": changes.added, "changed": changes.changed, "removed": changes.removed}
            _log.info(
                "agent %s: skills refreshed, generation %d; added: %s; changed: %s; removed: %s",
                plan.agent_id,
                changes.generation,
                *(", ".join(names) or "none" for names in changed.values()),
            )
            if not self._quiet:
                tell(self._telemetry, "refresh", plan, generation=changes.generation, **changed)
        for diagnostic in new:
            log_diagnostic(diagnostic)
            if not self._quiet:
                tell(self._telemetry, "diagnostic", plan, **diagnostic.to_json())
