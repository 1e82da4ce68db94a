"""An agent that is open: its code, skills, models and tools, ready for turns.

A worker opens one runtime per agent plan, and all turns share it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from flink_skills.agents.agent import Agent
from flink_skills.agents.answers import AnswerType
from flink_skills.agents.created_models import created_model
from flink_skills.agents.declaration import Declaration, read_declaration
from flink_skills.agents.event import event_text
from flink_skills.agents.event_content import EventContent
from flink_skills.agents.files import EventFile, event_files, pinned_file, stage_files, with_names
from flink_skills.agents.generation import Generation, GenerationParts, effective_names
from flink_skills.agents.models.circuit import Circuits
from flink_skills.agents.models.opened import OpenModels
from flink_skills.agents.named_files import NamedFiles
from flink_skills.agents.observers import listeners_of
from flink_skills.agents.opening import log_diagnostic, log_isolation, log_skills, open_skills, tell
from flink_skills.agents.opening_tools import close_shell, with_pool, with_shell
from flink_skills.agents.overriding import ModelOverrides
from flink_skills.agents.plan import AgentPlan, load_agent
from flink_skills.agents.record_rows import RecordRows
from flink_skills.agents.session_selection import conversation_id
from flink_skills.agents.state import assigned_state, new_state
from flink_skills.agents.state_values import StoredState
from flink_skills.agents.subagent import AgentTool
from flink_skills.agents.supervision import Deadlines
from flink_skills.agents.turn_limits import TurnLimits
from flink_skills.agents.turn_media import MediaStore
from flink_skills.errors import SkillsError
from flink_skills.execution import Workspace, WorkspaceManager
from flink_skills.execution.configuration import command_user
from flink_skills.execution.workspace import open_workspaces
from flink_skills.manager import AgentSkillManager, Refreshed
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import Diagnostic
from flink_skills.sources.store import usual_folder
from flink_skills.telemetry import Telemetry
from flink_skills.tools import ShellRunner
from flink_skills.tools.calling import CallGuard
from flink_skills.tools.services import ToolServices

__all__ = ["AgentRuntime"]

_log = logging.getLogger("flink_skills.runtime")


class AgentRuntime:
    """An open agent. Make it with :meth:`open`, close it with :meth:`close`.

    ``generation`` is what turns that begin now use; a turn takes it once, at its beginning.
    """

    def __init__(
        self,
        plan: AgentPlan,
        *,
        agent: Agent,
        declared: Declaration,
        manager: AgentSkillManager,
        models: OpenModels,
        services: ToolServices,
        scratch_dir: str,
        callees: Mapping[str, AgentRuntime] | None = None,
        workspaces: WorkspaceManager | None = None,
        is_main: bool = True,
        telemetry: Telemetry | None = None,
        on_figures: Callable[[Mapping[str, int]], None] | None = None,
        quiet: bool = False,
    ) -> None:
        self.plan = plan
        self.agent = agent
        self.config = SkillConfig(plan.options)
        self.limits = TurnLimits.of(self.config)
        self.deadlines = Deadlines(self.limits.seconds)
        self.named_files = NamedFiles(self.config, scratch_dir)
        self.content = EventContent(agent.content_fields, self.named_files)
        self.media = MediaStore(services.artifacts, self.config)
        self.manager = manager
        self.workspaces = workspaces
        self.telemetry = telemetry or Telemetry()
        self.rows = RecordRows.from_json(plan.rows) if plan.rows is not None else None
        self.records = plan.outputs == "record"
        self.keeps_conversation = plan.session == "key"
        self._declared = declared
        self._callees = callees or {}
        self._is_main = is_main
        self._services = services
        self._input_names = workspaces.input_names if workspaces is not None else frozenset()
        self._shell = services.shell
        self._models = models
        self._on_figures = on_figures
        self._quiet = quiet
        self._refreshes = self._failed_refreshes = 0
        self._refreshing = asyncio.Lock()
        self._refresher: asyncio.Task[None] | None = None
        for callee in self._callees.values():
            callee._on_figures = lambda _: self._tell_figures()
        for toolset in declared.all_toolsets:
            toolset.on_change = self._tell_figures
        self._parts = GenerationParts(
            plan=plan,
            chat_models=models.clients,
            permits=models.permits,
            chains=models.chains,
            own_tools={
                **{name: tool.make() for name, tool in declared.own_tools.items()},
                **{
                    name: AgentTool(name, declared.agents[name].description, of, **declared.agents[name].manner)
                    for name, of in self._callees.items()
                },
            },
            services=services,
            guard=CallGuard(self.config, agent.approve, agent.approve_tools),
            default_answer=AnswerType.of(declared.output_type),
            timeout=self.config.get(SkillOptions.MODEL_TIMEOUT),
        )
        self.generation = Generation.of(self._parts, manager)

    @classmethod
    async def open(
        cls,
        plan: AgentPlan,
        *,
        scratch_dir: str,
        resource_paths: Mapping[str, Sequence[str]] | None = None,
        store_dir: str | None = None,
        opened: float | None = None,
        on_figures: Callable[[Mapping[str, int]], None] | None = None,
        telemetry: Telemetry | None = None,
        quiet: bool = False,
        overrides: ModelOverrides | None = None,
    ) -> AgentRuntime:
        """Load the agent, its skills and its models.

        Args:
            plan: What to open, unsealed.
            scratch_dir: Folder of the job's workspaces, removed with the job by whoever made it.
            resource_paths: Where the job-JAR resources are on this machine, by name.
            store_dir: The store's folder where ``skills.store.dir`` names none.
            opened: When the job opened on this machine (seconds since 1970): what another worker learned about a
                source since then is not asked again.
            on_figures: Called with :meth:`figures` after opening and after each refresh.
            telemetry: Whom to tell what happens in turns; closed with the runtime.
            quiet: Log what is found at debug level: another process of this machine says it already.
            overrides: Replacements of chat models, for tests.

        Raises:
            SkillsError: anything that no turn could do without: an agent that cannot be imported, a skill source that
                cannot be read, a name that no source has. One bad skill is reported and skipped.
        """
        if not SkillConfig(plan.options).get(SkillOptions.STORE_DIR):
            # Beside the job's scratch folder and not inside: a restarted job must find what was downloaded before.
            store_dir = store_dir or usual_folder(str(Path(scratch_dir).parent))
        place = _Place(
            scratch_dir,
            resource_paths,
            store_dir,
            opened,
            telemetry or Telemetry(),
            quiet,
            overrides or ModelOverrides(),
            Circuits(SkillConfig(plan.options)),
        )
        try:
            agent = load_agent(plan.agent)
            if listeners := listeners_of(plan.agent_id, agent):
                place = place._replace(telemetry=place.telemetry.with_observers(*listeners))
            return await cls._open(plan, agent, place, on_figures=on_figures)
        except BaseException:
            await place.telemetry.close()
            raise

    @classmethod
    async def _open(
        cls,
        plan: AgentPlan,
        agent: Agent,
        place: _Place,
        *,
        services: ToolServices | None = None,
        workspaces: WorkspaceManager | None = None,
        on_figures: Callable[[Mapping[str, int]], None] | None = None,
        callers: tuple[str, ...] = (),
    ) -> AgentRuntime:
        """Open an agent, and those that are tools of it, which share its ``services`` and ``workspaces``."""
        config = SkillConfig(plan.options)
        declared = read_declaration(agent)
        chain = (*callers, plan.agent_id)
        # In a thread: sources may take long, and turns of other agents run on this loop.
        manager = await asyncio.to_thread(
            open_skills, plan, declared, place.resource_paths, place.store_dir, place.opened
        )
        is_main = services is None
        models = OpenModels()
        callees: dict[str, AgentRuntime] = {}
        own = services or ToolServices(manager.view([]), config)
        try:
            models.open(
                plan.models,
                config,
                place.scratch_dir,
                place.circuits,
                lambda model: (
                    place.overrides.model(chain, model, config)
                    or created_model(plan.agent_id, model.name, model.setup, config)
                ),
            )
            if is_main:
                shell = None
                if plan.runs_commands:
                    # In a thread: what killed jobs left behind is removed first.
                    workspaces = await asyncio.to_thread(
                        open_workspaces,
                        config,
                        agent_id=plan.operator_name,
                        scratch_dir=place.scratch_dir,
                        user=command_user(config),
                    )
                    shell = await ShellRunner.start(config, workspaces)
                    workspaces.start()
                    own = replace(own, shell=shell)
                own = await with_shell(own, shell)
            own = await with_pool(own, declared, place.scratch_dir, plan.operator_name)
            for name, callee in plan.agents.items():
                callees[name] = await cls._open(
                    callee, declared.agents[name].agent, place, services=own, workspaces=workspaces, callers=chain
                )
            runtime = cls(
                plan,
                agent=agent,
                declared=declared,
                manager=manager,
                models=models,
                scratch_dir=place.scratch_dir,
                services=own,
                callees=callees,
                workspaces=workspaces,
                is_main=is_main,
                telemetry=place.telemetry,
                on_figures=on_figures,
                quiet=place.quiet,
            )
        except BaseException:
            await _release(manager, models, callees, own, workspaces, is_main=is_main)
            raise
        log_skills(plan, manager, place.telemetry, isolation=runtime.isolation, quiet=place.quiet)
        if is_main and own.shell is not None:
            log_isolation(plan, own.shell, quiet=place.quiet)
        runtime._tell_figures()
        interval = config.get(SkillOptions.REFRESH_INTERVAL)
        if interval and plan.scopes:
            runtime._refresher = asyncio.create_task(runtime._refresh_every(interval))
        return runtime

    def tree(self) -> Iterator[AgentRuntime]:
        """This agent, and all that it can call."""
        yield self
        for callee in self._callees.values():
            yield from callee.tree()

    async def refresh(self) -> bool:
        """Look at the sources again, in a thread; True when turns that begin from now on use other skills.

        Nothing is raised for what goes wrong: the skills stay as they are, and it is logged and counted.
        """
        async with self._refreshing:
            self._refreshes += 1
            before = self.generation
            try:
                self.generation, changes, new = await asyncio.to_thread(self._refreshed)
            except SkillsError as error:
                self._failed_refreshes += 1
                _log.error("agent %s keeps the skills that it has: %s", self.plan.agent_id, error)
            except Exception:  # the sources of third parties raise anything
                self._failed_refreshes += 1
                _log.exception("agent %s keeps the skills that it has: refreshing them failed", self.plan.agent_id)
            else:
                self._failed_refreshes += bool(self.manager.failures)
                self._tell_changes(changes, new)
            self._tell_figures()
            return self.generation is not before

    def _refreshed(self) -> tuple[Generation, Refreshed | None, list[Diagnostic]]:
        """The generation after a refresh, the same one when nothing changed; what did; what there is to say about it.

        What was said before is not said again, a source that goes on failing for one.
        """
        told = set(self.manager.diagnostics)
        changes = self.manager.refresh()
        generation = self.generation
        # Also when an earlier refresh changed the skills, but not so that every model could be opened.
        if self.manager.generation != generation.number:
            self.manager.inspect(effective_names(self.plan, self.manager))
            generation = Generation.of(self._parts, self.manager)
        return generation, changes, [found for found in self.manager.diagnostics if found not in told]

    def _tell_changes(self, changes: Refreshed | None, new: Sequence[Diagnostic]) -> None:
        if changes is not None:
            changed = {"added": changes.added, "changed": changes.changed, "removed": changes.removed}
            _log.info(
                "agent %s: skills refreshed, generation %d; added: %s; changed: %s; removed: %s",
                self.plan.agent_id,
                changes.generation,
                *(", ".join(names) or "none" for names in changed.values()),
            )
            if not self._quiet:
                tell(self.telemetry, "refresh", self.plan, generation=changes.generation, **changed)
        for diagnostic in new:
            log_diagnostic(diagnostic)
            if not self._quiet:
                tell(self.telemetry, "diagnostic", self.plan, **diagnostic.to_json())

    async def _refresh_every(self, interval: float) -> None:
        while True:
            # Spread, so that the workers of a cluster do not ask a server all at once.
            await asyncio.sleep(interval * random.uniform(0.9, 1.1))
            await self.refresh()

    def _tell_figures(self) -> None:
        if self._on_figures is not None:
            self._on_figures(self.figures())

    def figures(self) -> dict[str, int]:
        """What metrics show: the skills, with those of agents that are tools, and the number of the isolation level."""
        agents = list(self.tree())
        summaries = [agent.manager.summary() for agent in agents]

        def total(name: str) -> int:
            return sum(summary[name] for summary in summaries)

        of_tools: Counter[str] = Counter()
        for agent in agents:
            for toolset in agent._declared.all_toolsets:
                of_tools.update(toolset.figures())
        return {
            **of_tools,
            **({"isolationLevel": int(self._shell.level)} if self._shell is not None else {}),
            "skills": total("skills"),
            "diagnosticErrors": total("errors"),
            "diagnosticWarnings": total("warnings"),
            "diagnosticInfos": total("infos"),
            "failedSources": total("failed_sources"),
            "generation": self.generation.number,
            "refreshes": sum(agent._refreshes for agent in agents),
            "refreshFailures": sum(agent._failed_refreshes for agent in agents),
        }

    def new_state(self, kept: StoredState) -> Any:
        """``ctx.state`` from its stored form. Raises :class:`TurnError` where that does not fit its type."""
        return new_state(self._declared.state_type, kept)

    def assigned_state(self, value: Any) -> Any:
        """Return the state for ``ctx.state = value``. Raises :class:`TurnError` for what cannot be one."""
        return assigned_state(self._declared.state_type, value)

    @property
    def has_plain_state(self) -> bool:
        """Whether ``ctx.state`` is a dict, so that it has just the keys that the agent's code gave it."""
        return self._declared.state_type is None

    def session_id(self, event: Any) -> str:
        """Return the id of the conversation that an event belongs to. Raises :class:`TurnError`."""
        return conversation_id(self.agent.session_selector, event)

    def has_files(self, event: Any) -> bool:
        """Whether the event has a field for files at all, so that :meth:`read_event` is worth its while."""
        field = self.agent.files_field
        value = event.get(field) if isinstance(event, Mapping) else getattr(event, field, None)
        return isinstance(value, (list, tuple, Mapping)) and bool(value)

    def read_event(self, event: Any) -> tuple[Any, Sequence[EventFile]]:
        """The event as models read it, and its files. Decodes them: call it from a thread."""
        field = self.agent.files_field
        files = event_files(event, field, self._input_names)
        return with_names(event, files, field), files

    def artifact_versions(self, files: Sequence[EventFile], owner: str, known: Mapping[str, str]) -> dict[str, str]:
        """The versions of the artifacts that files are without saying which: as ``known`` to the conversation, else the
        newest of ``owner``, "" for one that there is not. Blocks."""
        store = self._services.artifacts
        return {
            file.ref.path: known.get(file.ref.path)
            or (store.newest(owner, file.ref.path) if store is not None else None)
            or ""
            for file in files
            if file.ref is not None and not file.ref.version
        }

    def hand_over(
        self,
        workspace: Workspace,
        event_for_model: Any,
        files: Sequence[EventFile],
        owner: str,
        versions: Mapping[str, str],
    ) -> Sequence[Mapping[str, Any]]:
        """Write the event and its files to ``work/inputs/``. Return a record for each file.

        ``versions`` are those of :meth:`artifact_versions`. Blocks. Raises
        :class:`~flink_skills.errors.ExecutionError` where the workspace cannot be used.
        """
        workspace.write_event(self.event_json(event_for_model))
        if not files:
            return ()
        pinned = [pinned_file(file, versions) for file in files]
        return stage_files(workspace, pinned, self._services.artifacts, owner, None)

    def event_json(self, event: Any) -> bytes:
        """The event as a command finds it in ``work/inputs/event.json``."""
        if isinstance(event, str):
            return json.dumps(event, ensure_ascii=False).encode()
        text = event_text(event)
        try:
            json.loads(text)
        except ValueError:
            text = json.dumps(text, ensure_ascii=False)
        return text.encode("utf-8", "surrogatepass")

    @property
    def isolation(self) -> str:
        """How commands are kept apart from the rest of the machine: the name of the level."""
        return self._shell.level.name if self._shell is not None else "none: no commands"

    def without_hidden(self, text: str) -> str:
        """``text`` without the values of ``skills.env`` that commands were given so far."""
        return self._shell.hidden.in_text(text) if self._shell is not None else text

    def begun_hidden(self, text: str) -> int:
        """How many characters at the end of ``text`` may be the beginning of such a value."""
        return self._shell.hidden.begun_in_text(text) if self._shell is not None else 0

    def report(self) -> dict[str, Any]:
        """What an operator wants to know after opening."""
        return {
            "agent": self.plan.agent_id,
            "skills": [skill.name for skill in self.manager.get_skills()],
            "models": {name: list(model.view.names) for name, model in self.generation.models.items()},
            "diagnostics": len(self.manager.diagnostics),
            "isolation": self.isolation,
            "isolation_report": self._shell.report.to_json() if self._shell is not None else None,
        }

    async def close(self) -> None:
        """Release models, processes, workspaces and the skills' folders."""
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.gather(self._refresher, return_exceptions=True)
        await _release(
            self.manager, self._models, self._callees, self._services, self.workspaces, is_main=self._is_main
        )
        if self._is_main:
            await self.telemetry.close()


class _Place(NamedTuple):
    """Where an agent is opened: see :meth:`AgentRuntime.open`."""

    scratch_dir: str
    resource_paths: Mapping[str, Sequence[str]] | None
    store_dir: str | None
    opened: float | None
    telemetry: Telemetry
    quiet: bool
    overrides: ModelOverrides
    circuits: Circuits


async def _release(
    manager: AgentSkillManager,
    models: OpenModels,
    callees: Mapping[str, AgentRuntime],
    services: ToolServices,
    workspaces: WorkspaceManager | None,
    *,
    is_main: bool,
) -> None:
    for callee in callees.values():
        await callee.close()
    await models.close()
    for pool in (services.pool, services.toolsets):
        if pool is not None:
            await pool.close()
    if is_main:
        await close_shell(services)
        if workspaces is not None:
            await workspaces.aclose()
    manager.close()
