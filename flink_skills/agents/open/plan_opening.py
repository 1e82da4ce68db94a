"""Opens an agent in a worker: its code, skills, models and tools."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from flink_skills.agents.declare.agent import Agent, ModelOverrides
from flink_skills.agents.declare.answers import AnswerType
from flink_skills.agents.declare.declaration import Declaration, declared_pool, read_declaration
from flink_skills.agents.declare.subagent import AgentTool
from flink_skills.agents.open.generation import GenerationParts
from flink_skills.agents.open.open_agent import OpenAgent, OpenHost, ReadableOptions, isolation_of
from flink_skills.agents.open.opening import (
    LiveSkills,
    log_isolation,
    log_skills,
    open_skills,
    plugin_tool_sets,
    server_names,
)
from flink_skills.agents.plan.name_checks import (
    NamedAgent,
    approver_of,
    check_matches,
    job_matches,
    own_matches,
    without_others,
)
from flink_skills.agents.plan.plan import AgentPlan, load_agent
from flink_skills.artifacts import ArtifactStore
from flink_skills.errors import PlanError, SkillsError, UnknownNameError
from flink_skills.execution import WorkspaceManager
from flink_skills.execution.backend_registry import command_user
from flink_skills.execution.workspace import open_workspaces
from flink_skills.models.base import ChatModel
from flink_skills.models.fallback import OpenModels
from flink_skills.models.permits import WorkerLimits
from flink_skills.models.registry import create_model, has_listed_price
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.store import usual_folder
from flink_skills.telemetry import CustomMetrics, Observer, Telemetry
from flink_skills.telemetry.event_detail import Redact, SecretPrefixLength
from flink_skills.telemetry.events import OnEvent
from flink_skills.telemetry.job_observers import OnMetrics, TelemetrySettings, open_telemetry
from flink_skills.tools import ShellRunner
from flink_skills.tools.calling import CallGuard
from flink_skills.tools.dynamic.bundled import BundledTools
from flink_skills.tools.dynamic.tool_pool import ToolPool
from flink_skills.tools.profiles import brings_tools
from flink_skills.tools.runs.process_sessions import ProcessSessions
from flink_skills.tools.skills.skill_face import ToolServices
from flink_skills.tools.tool_names import NameMatch, NameUse, resolve


def created_model(agent_id: str, name: str, setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create the chat model ``name`` of an agent, or a fallback of one.

    Raises:
        PlanError: The model cannot be created, for instance because its key is missing.
        UnknownNameError: There is no such provider.
    """
    try:
        return create_model(setup, config)
    except UnknownNameError:
        raise
    except SkillsError as error:
        raise PlanError(f"chat model {name!r} of agent {agent_id}: {error}") from error


def telemetry_of(
    plan: AgentPlan,
    config: SkillConfig,
    *,
    on_metrics: OnMetrics | None = None,
    custom_metrics: CustomMetrics | None = None,
    events: bool | None = None,
    on_event: OnEvent | None = None,
    redact: Redact | None = None,
    secret_prefix_length: SecretPrefixLength | None = None,
) -> Telemetry:
    """Create the observers of the agent of ``plan``.

    Args:
        plan: Plan of the agent.
        config: Options of the job.
        on_metrics: Receives the metrics. Without it, only custom metrics are collected.
        custom_metrics: Collects them. Default: a new collection.
        events: Overrides ``skills.events.enabled``.
        on_event: Receives the events that belong to no turn.
        redact: Removes secrets from the text of events and spans.
        secret_prefix_length: Returns how many characters at the end of a string may be the start of a secret.

    Raises:
        SkillsError: An observer cannot be created, for example because OpenTelemetry is not installed.
    """
    settings = TelemetrySettings(
        agent=plan.agent_id,
        metrics_interval=config.get(SkillOptions.METRICS_INTERVAL),
        max_labels=config.get(SkillOptions.METRICS_MAX_LABELS),
        events=config.get(SkillOptions.EVENTS_ENABLED) if events is None else events,
        events_content=config.get(SkillOptions.EVENTS_CONTENT),
        events_deltas=config.get(SkillOptions.EVENTS_DELTAS),
        events_delta_interval=config.get(SkillOptions.EVENTS_DELTA_INTERVAL),
        trace_exporter=config.get(SkillOptions.TRACE_EXPORTER),
        trace_content=config.get(SkillOptions.TRACE_CONTENT),
        trace_max_turns=config.get(SkillOptions.TRACE_MAX_TURNS),
    )
    return open_telemetry(
        settings,
        on_metrics=on_metrics,
        custom_metrics=custom_metrics,
        on_event=on_event,
        redact=redact,
        secret_prefix_length=secret_prefix_length,
        has_listed_price=has_listed_price,
    )


def listeners_of(agent_id: str, agent: Agent) -> Sequence[Observer]:
    """The agent's own listeners. Raises :class:`PlanError` where they are none."""
    try:
        found = tuple(agent.listeners())
    except Exception as error:  # the agent is the user's
        raise PlanError(f"agent {agent_id}: listeners() failed ({type(error).__name__}: {error})") from error
    for listener in found:
        if not isinstance(listener, Observer):
            raise PlanError(
                f"agent {agent_id}: listeners() gives {listener!r}; give instances of flink_skills.telemetry.Observer"
            )
    return found


_log = logging.getLogger("flink_skills.runtime")
_MAX_SAID = 1000


class _Watch:
    """Reports the metrics of an open agent when they change, and names in its plan that match no tool or skill."""

    def __init__(self, receive: Callable[[Mapping[str, int]], None] | None, *, quiet: bool) -> None:
        self._receive = receive
        self._level = logging.DEBUG if quiet else logging.WARNING
        self._said: set[str] = set()
        #: The agent that is not a tool of another one, when it is open.
        self.agent: OpenAgent | None = None

    def open(self, agent: OpenAgent) -> None:
        """Begin. Raises :class:`UnmatchedNamesError` for names that match nothing, and that nothing can bring."""
        matches = self._matches(agent)
        check_matches(matches)
        self._log(matches)
        for each in agent.tree():
            approved = [*each.config.get(SkillOptions.TOOLS_APPROVE), *each.plan.approve]
            if approved and approver_of(each.agent) is None:
                _log.log(
                    self._level,
                    "agent %s: all calls of %s are refused, because the agent has no method approve",
                    each.plan.agent_id,
                    ", ".join(approved),
                )
        self.agent = agent
        self.changed()

    def changed(self) -> None:
        """Report what is new: servers list other tools, or the skills were refreshed."""
        if self.agent is None:
            return
        self._log(self._matches(self.agent))
        if self._receive is not None:
            self._receive(self.agent.figures())

    def _matches(self, agent: OpenAgent) -> list[NameMatch]:
        tree = [_named(each) for each in agent.tree()]
        own = [match for named in tree for match in own_matches(named)]
        return [*own, *without_others(job_matches([tree]), agent.plan.elsewhere)]

    def _log(self, matches: Sequence[NameMatch]) -> None:
        for match in matches:
            if match.problem and match.problem not in self._said and len(self._said) < _MAX_SAID:
                self._said.add(match.problem)
                _log.log(self._level, "%s", match.problem)


def control_problem(agent: OpenAgent, target: str, name: str) -> str:
    """Return the problem of a name in a control record, an empty string if an agent has such a skill or tool now."""
    use = NameUse("a control record", name, "skill" if target == "skill" else "tool", is_exact=True, is_strict=True)
    known = [_named(each).known(use.kind) for each in agent.tree()]
    return resolve(use, f"agent {agent.plan.operator_name!r}", known).problem


def _named(agent: OpenAgent) -> NamedAgent:
    """Return an open agent with the names that it has now."""
    bringers = ["a refresh of the skills"] if agent.config.get(SkillOptions.REFRESH_INTERVAL) else []
    summary = agent.manager.summary()
    if summary["failed_sources"] or summary["errors"] or summary["left_out"]:
        bringers.append("a skill that could not be read")
    skills = agent.manager.get_skills()
    return NamedAgent(
        agent.plan,
        agent.agent,
        agent.declared,
        skills=frozenset(agent.manager.known_names()),
        servers=server_names(agent.config, agent.manager),
        skill_bringers=tuple(bringers) if agent.plan.scopes else (),
        has_bundled=agent.services.bundled is not None and (bool(bringers) or any(map(brings_tools, skills))),
    )


@dataclass(frozen=True)
class _Place:
    """The environment in which an agent and the agents that it calls are opened. See :func:`open_plan`."""

    scratch_dir: str
    resource_paths: Mapping[str, Sequence[str]] | None
    store_dir: str | None
    opened: float | None
    quiet: bool
    overrides: ModelOverrides
    limits: WorkerLimits
    watch: _Watch


async def open_plan(
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
    limits: WorkerLimits | None = None,
) -> OpenAgent:
    """Open the agent of a plan: load its code and its skills, create its models, and start its tools.

    Args:
        plan: The plan, unsealed.
        scratch_dir: The directory of the job on this machine. Its creator removes it with the job.
        resource_paths: The paths of job-JAR resources on this machine, by name.
        store_dir: The directory of the store, unless ``skills.store.dir`` names one.
        opened: When the job opened on this machine, in seconds since 1970. What another worker learned about a source
            since then is not requested again.
        on_figures: Called with :meth:`OpenAgent.figures` after opening and after each refresh.
        telemetry: The observers of turns. They are closed with the agent.
        quiet: Log findings at debug level, because another process of this machine logs them.
        overrides: Replacements of chat models, for tests.
        limits: Permits and circuits of models that the agents of this worker share. Default: those of one worker.

    Returns:
        The open agent. Close it with :meth:`OpenAgent.close`.

    Raises:
        SkillsError: Anything that every turn needs is missing: an agent that cannot be imported, a skill source that
            cannot be read, a name that no source has, an approval of a tool that does not exist. One invalid skill is
            reported and skipped.

    Example:
        >>> agent = await open_plan(compile_plan(Desk()), scratch_dir=folder)
        >>> outcome = await Turn(agent, start, append).run()
        >>> await agent.close()
    """
    config = SkillConfig(plan.options)
    if not config.get(SkillOptions.STORE_DIR):
        # Next to the job's scratch directory: a restarted job must find the downloads of the one before.
        store_dir = store_dir or usual_folder(str(Path(scratch_dir).parent))
    telemetry = telemetry or Telemetry()
    watch = _Watch(on_figures, quiet=quiet)
    place = _Place(
        scratch_dir,
        resource_paths,
        store_dir,
        opened,
        quiet,
        overrides or ModelOverrides(),
        limits or WorkerLimits(),
        watch,
    )
    try:
        agent = load_agent(plan.agent)
        if listeners := listeners_of(plan.agent_id, agent):
            telemetry = telemetry.with_observers(*listeners)
    except BaseException:
        await telemetry.close()
        raise
    found = await _open(plan, agent, place, OpenHost(scratch_dir, telemetry, ReadableOptions(config)))
    try:
        watch.open(found)
    except BaseException:
        await found.close()
        raise
    return found


async def _open(
    plan: AgentPlan,
    agent: Agent,
    place: _Place,
    host: OpenHost,
    *,
    services: ToolServices | None = None,
    callers: tuple[str, ...] = (),
) -> OpenAgent:
    """Open an agent. An agent that is a tool shares ``services`` and ``host`` with its caller."""
    config = SkillConfig(plan.options)
    declared = read_declaration(agent)
    chain = (*callers, plan.agent_id)
    async with AsyncExitStack() as stack:
        if services is None:
            stack.push_async_callback(host.telemetry.close)
        # In a thread: sources may take long, and turns of other agents run on this loop.
        manager = await asyncio.to_thread(
            open_skills, plan, agent, declared, place.resource_paths, place.store_dir, opened=place.opened
        )
        stack.callback(manager.close)
        models = OpenModels()
        stack.push_async_callback(models.close)
        models.open(
            plan.models,
            config,
            place.limits,
            lambda model: (
                place.overrides.model(chain, model, config)
                or created_model(plan.agent_id, model.name, model.setup, config)
            ),
        )
        own = services
        if own is None:
            own = ToolServices(manager.view([]), config)
            shell = None
            if plan.runs_commands:
                workspaces = await _open_workspaces(plan, config, place, stack)
                host = replace(host, workspaces=workspaces)
                shell = await ShellRunner.start(config, workspaces)
                stack.push_async_callback(shell.close)
                workspaces.start()
            own = await _with_shell(own, shell, stack)
        servers = await asyncio.to_thread(plugin_tool_sets, plan, manager, own.shell)
        declared = replace(declared, toolsets=[*declared.toolsets, *servers])
        own = await _with_pool(own, declared, place.scratch_dir, plan.operator_name, stack)
        callees: dict[str, OpenAgent] = {}
        for name, callee in plan.agents.items():
            found = await _open(callee, declared.agents[name].agent, place, host, services=own, callers=chain)
            stack.push_async_callback(found.close)
            callees[name] = found
        for toolset in declared.all_toolsets:
            toolset.on_change = place.watch.changed
        parts = _parts(plan, agent, declared, models, services=own, callees=callees)
        skills = LiveSkills(manager, parts, host.telemetry, place.watch.changed, quiet=place.quiet)
        log_skills(plan, manager, host.telemetry, isolation=isolation_of(own), quiet=place.quiet)
        if services is None and own.shell is not None:
            log_isolation(plan, own.shell, quiet=place.quiet)
        interval = config.get(SkillOptions.REFRESH_INTERVAL)
        if interval and plan.scopes:
            refreshing = asyncio.create_task(skills.refresh_every(interval))
            stack.push_async_callback(_cancel, refreshing)
        return OpenAgent(plan, agent, declared, skills, own, host, callees, stack.pop_all())


async def _open_workspaces(
    plan: AgentPlan, config: SkillConfig, place: _Place, stack: AsyncExitStack
) -> WorkspaceManager:
    # In a thread: the remains of killed jobs are removed first.
    workspaces = await asyncio.to_thread(
        open_workspaces,
        config,
        agent_id=plan.operator_name,
        scratch_dir=place.scratch_dir,
        user=command_user(config),
    )
    stack.push_async_callback(workspaces.aclose)
    return workspaces


def _parts(
    plan: AgentPlan,
    agent: Agent,
    declared: Declaration,
    models: OpenModels,
    *,
    services: ToolServices,
    callees: Mapping[str, OpenAgent],
) -> GenerationParts:
    config = SkillConfig(plan.options)
    own_tools = {name: tool.make() for name, tool in declared.own_tools.items()}
    for name, callee in callees.items():
        own_tools[name] = AgentTool(name, declared.agents[name].description, callee, **declared.agents[name].manner)
    return GenerationParts(
        plan=plan,
        chat_models=models.clients,
        permits=models.permits,
        chains=models.chains,
        own_tools=own_tools,
        services=services,
        guard=CallGuard(config, agent.approve, agent.approve_tools),
        default_answer=AnswerType.of(declared.output_type),
        timeout=config.get(SkillOptions.MODEL_TIMEOUT),
    )


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _with_shell(services: ToolServices, shell: ShellRunner | None, stack: AsyncExitStack) -> ToolServices:
    """Return the services of a job with artifacts, and with what runs commands if the job has a ``shell``.

    ``stack`` closes what is opened. Raises :class:`~flink_skills.errors.ConfigError` for a location of artifacts that
    cannot be used.
    """
    # In a thread: a file system may have to be asked.
    services = replace(services, shell=shell, artifacts=await asyncio.to_thread(ArtifactStore.open, services.config))
    if shell is None:
        return services
    config = services.config
    sessions, bundled = ProcessSessions(shell, config), BundledTools(shell, config)
    stack.push_async_callback(sessions.close)
    stack.push_async_callback(bundled.close)
    return replace(services, sessions=sessions, bundled=bundled)


async def _with_pool(
    services: ToolServices, declared: Declaration, scratch_dir: str, operator: str, stack: AsyncExitStack
) -> ToolServices:
    """Return the services with the tool sets and the pool of tools that an agent declares, started.

    ``stack`` closes them.

    A worker that replaces another one opens without a required tool set that the other one had, because the turns of
    the job do not need it to continue. A file in ``scratch_dir``, named after ``operator``, records that the agent was
    opened.

    Raises :class:`~flink_skills.errors.SkillsError` for a required tool set that cannot start.
    """
    pool = declared_pool(declared)
    toolsets = ToolPool(declared.toolsets, owner=declared.agent_id) if declared.toolsets else None
    opened = Path(scratch_dir, f"opened-{hashlib.sha256(operator.encode()).hexdigest()[:16]}")
    was_opened = await asyncio.to_thread(opened.exists)
    for given in declared.all_toolsets:
        given.attach(services)
        given.required = given.required and not was_opened
    # The pool is closed first.
    for one in (toolsets, pool):
        if one is not None:
            stack.push_async_callback(one.close)
    for one in (pool, toolsets):
        if one is not None:
            await one.initialize()
    if any(given.required for given in declared.all_toolsets):
        await asyncio.to_thread(_create, opened)
    return replace(services, pool=pool, toolsets=toolsets)


def _create(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
