"""An agent that is open: its code, skills, models, tools and limits, ready for turns."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.declaration import Declaration
from flink_skills.agents.declare.route import EventLabels
from flink_skills.agents.open.event_content import EventContent
from flink_skills.agents.open.generation import Generation
from flink_skills.agents.open.named_files import NamedFiles
from flink_skills.agents.open.opening import LiveSkills
from flink_skills.agents.open.supervision import Deadlines
from flink_skills.agents.open.turn_media import MediaStore
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.rows.table_rows import RecordRows
from flink_skills.agents.state.error_text import error_text
from flink_skills.agents.state.event import event_text
from flink_skills.agents.state.files import EventFile, event_files, pinned_file, stage_files, with_names
from flink_skills.agents.state.state_values import StoredState
from flink_skills.agents.state.typed_state import assigned_state, new_state
from flink_skills.artifacts import ArtifactStore, owner_of
from flink_skills.errors import ConfigError, TurnError
from flink_skills.execution import Workspace, WorkspaceManager
from flink_skills.manager import AgentSkillManager
from flink_skills.options import JobConfig, SkillConfig, SkillOptions
from flink_skills.sources.secrets import expand, replacements
from flink_skills.telemetry import MetricGroup, Telemetry
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.skills.skill_face import ToolServices


class ReadableOptions:
    """Options for the code of agents on this machine. References in custom keys are replaced at each read.

    Attributes:
        view: The options for agents and tools.
        hidden: The resolved values. Logs, events and spans do not show them.

    >>> os.environ["TENANT_KEY"] = "t0k3n-1"
    >>> options = ReadableOptions(SkillConfig({"skills.user.key": "${env:TENANT_KEY}"}))
    >>> options.view.get("skills.user.key"), options.hidden.in_text("sent t0k3n-1")
    ('t0k3n-1', 'sent [hidden]')
    """

    def __init__(self, config: SkillConfig) -> None:
        self.hidden = HiddenValues()
        self.view = JobConfig(config, self._resolve)
        family = SkillOptions.USER
        for name, text in config.family(family).items():
            # Hide the values before any code runs. A reference that cannot be resolved is an error where it is read.
            with suppress(ConfigError):
                self._resolve(family.prefix + name, text)

    def _resolve(self, key: str, text: str) -> str:
        try:
            # In a job file as well, "$${" represents "${".
            parts = [expand(part) for part in text.split("$${")]
        except ConfigError as error:
            raise ConfigError(f"option {key}: {error}") from None
        for inserted, reference in replacements(text):
            self.hidden.add(f"{key} {reference}", inserted)
        return "${".join(parts)


class TurnLimits(NamedTuple):
    """The options that each turn needs, read once: a turn would look them up a dozen times.

    ``seconds`` is None, and ``tokens``, ``history`` and ``conversations`` are 0, where there is no limit. ``history``
    is in tokens and ``size`` in bytes. ``polling`` overrides :attr:`flink_skills.Tool.repeats` by the name of the tool.
    """

    seconds: float | None
    steps: int
    tokens: int
    size: int
    output_retries: int
    history: int
    conversations: int
    fails_job: bool
    repeats: int
    polling: Mapping[str, bool]

    @classmethod
    def of(cls, config: SkillConfig) -> TurnLimits:
        """Return the limits of a job."""
        return cls(
            seconds=config.get(SkillOptions.TURN_TIMEOUT) or None,
            steps=config.get(SkillOptions.TURN_MAX_STEPS),
            tokens=config.get(SkillOptions.TURN_MAX_TOKENS),
            size=config.get(SkillOptions.TURN_MAX_SIZE),
            output_retries=config.get(SkillOptions.TURN_MAX_OUTPUT_RETRIES),
            history=config.get(SkillOptions.SESSION_MAX_TOKENS),
            conversations=config.get(SkillOptions.SESSION_MAX_CONVERSATIONS),
            fails_job=config.get(SkillOptions.TURN_ON_ERROR) == "fail",
            repeats=config.get(SkillOptions.TURN_MAX_REPEATS),
            polling=config.family(SkillOptions.TOOL_REPEATS_OF),
        )


class EventStaging:
    """The field of events that contains files, and where these files are stored.

    Args:
        field: The name of the field.
        inputs: The names in ``work/inputs/`` that the job itself uses.
        artifacts: The artifact store of the job. None: the job has none.
    """

    def __init__(self, field: str, inputs: frozenset[str], artifacts: ArtifactStore | None) -> None:
        self.field = field
        self._inputs = inputs
        self._artifacts = artifacts

    def has_files(self, event: Any) -> bool:
        """Return True if the event may contain files, so that :meth:`read` has to be called."""
        value = event.get(self.field) if isinstance(event, Mapping) else getattr(event, self.field, None)
        return isinstance(value, (list, tuple, Mapping)) and bool(value)

    def read(self, event: Any) -> tuple[Any, Sequence[EventFile]]:
        """Return the event without the contents of its files, and the files. Blocks, because it decodes them."""
        files = event_files(event, self.field, self._inputs)
        return self.with_names(event, files), files

    def with_names(self, event: Any, files: Sequence[EventFile]) -> Any:
        """Return the event with the names of ``files`` instead of their contents."""
        return with_names(event, files, self.field)

    def versions(self, files: Sequence[EventFile], owner: str, known: Mapping[str, str]) -> dict[str, str]:
        """Return the versions of the artifacts that files name without a version. Blocks.

        The version is the one in ``known``, else the newest one of ``owner``. It is empty for an artifact that does not
        exist.
        """
        store = self._artifacts
        return {
            file.ref.path: known.get(file.ref.path)
            or (store.newest(owner, file.ref.path) if store is not None else None)
            or ""
            for file in files
            if file.ref is not None and not file.ref.version
        }

    def write(
        self, workspace: Workspace, event: Any, files: Sequence[EventFile], owner: str, versions: Mapping[str, str]
    ) -> Sequence[Mapping[str, Any]]:
        """Write the event and its files to ``work/inputs/``. Return a record for each file. Blocks.

        ``versions`` are those of :meth:`versions`. Raises :class:`~flink_skills.errors.ExecutionError` if the workspace
        cannot be used.
        """
        workspace.write_event(event_json(event))
        if not files:
            return ()
        pinned = [pinned_file(file, versions) for file in files]
        return stage_files(workspace, pinned, self._artifacts, owner, None)


def event_json(event: Any) -> bytes:
    """Return the content of ``work/inputs/event.json`` for an event."""
    if isinstance(event, str):
        return json.dumps(event, ensure_ascii=False).encode()
    text = event_text(event)
    try:
        json.loads(text)
    except ValueError:
        text = json.dumps(text, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class OpenHost:
    """The parts of an open agent that the agents that it calls share.

    ``scratch_dir`` is the directory of the job on this machine. ``options`` has the options for the code of agents.
    ``workspaces`` is None if the job runs no commands.
    """

    scratch_dir: str
    telemetry: Telemetry
    options: ReadableOptions
    workspaces: WorkspaceManager | None = None


@dataclass(frozen=True, eq=False)
class OpenAgent:
    """An open agent. A worker opens each plan once with :func:`~flink_skills.agents.open_plan`; all turns share it.

    Attributes:
        plan: The plan, unsealed.
        agent: The instance of the agent's class.
        declared: What the class declares.
        skills: The skills as they are now.
        services: What its tools work with.
        host: What it shares with the agents that it calls.
        callees: The agents that are its tools, by the tool's name.
        resources: Everything that :meth:`close` releases.
        config: The options of the job.
        hooks: The hooks that the agent overrides.
        job_config: The same options for the agent's code.
        metrics: The custom metrics that the agent's code updates.
        limits: The limits of its turns.
        deadlines: The deadlines of its turns.
        reported_lines: The lines of its code whose awaits do not continue while a turn waits, after their report.
        rows: The tables of its records. None: records are dicts.
        records: True if its outputs are records.
        keeps_conversation: True if the conversation of a key continues in its next turn.
        named_files: Fetches the files that events name.
        content: Reads the media of events.
        media: Stores the media of conversations.
        files: Reads the files of events, and writes them to workspaces.
        workspaces: The workspaces of its keys. None: the job runs no commands.
        telemetry: The observers of its turns.
        labels: The labels of the metrics of its turns.
    """

    plan: AgentPlan
    agent: Agent
    declared: Declaration
    skills: LiveSkills
    services: ToolServices
    host: OpenHost
    callees: Mapping[str, OpenAgent]
    resources: AsyncExitStack

    # Computed from the fields above. Not properties: a turn reads each of them several times.
    config: SkillConfig = field(init=False)
    hooks: Hooks = field(init=False)
    job_config: JobConfig = field(init=False)
    metrics: MetricGroup = field(init=False)
    limits: TurnLimits = field(init=False)
    deadlines: Deadlines = field(init=False)
    reported_lines: set[str] = field(init=False)
    rows: RecordRows | None = field(init=False)
    records: bool = field(init=False)
    keeps_conversation: bool = field(init=False)
    named_files: NamedFiles = field(init=False)
    content: EventContent = field(init=False)
    media: MediaStore = field(init=False)
    files: EventStaging = field(init=False)
    workspaces: WorkspaceManager | None = field(init=False)
    telemetry: Telemetry = field(init=False)
    labels: EventLabels = field(init=False)

    def __post_init__(self) -> None:
        plan, agent, host, artifacts = self.plan, self.agent, self.host, self.services.artifacts
        config = SkillConfig(plan.options)
        limits = TurnLimits.of(config)
        named_files = NamedFiles(config, host.scratch_dir)
        inputs = host.workspaces.input_names if host.workspaces is not None else frozenset()
        computed = {
            "config": config,
            "hooks": Hooks.of(agent),
            "job_config": host.options.view,
            "metrics": host.telemetry.custom_metrics.of_agent(plan.agent_id),
            "limits": limits,
            "deadlines": Deadlines(limits.seconds),
            "reported_lines": set(),
            "rows": RecordRows.from_json(plan.rows) if plan.rows is not None else None,
            "records": plan.outputs == "record",
            "keeps_conversation": plan.session == "key",
            "named_files": named_files,
            "content": EventContent(agent.content_fields, named_files),
            "media": MediaStore(artifacts, config),
            "files": EventStaging(agent.files_field, inputs, artifacts),
            "workspaces": host.workspaces,
            "telemetry": host.telemetry,
            "labels": EventLabels(config.get(SkillOptions.METRICS_LABELS), plan.agent_id),
        }
        for name, value in computed.items():
            object.__setattr__(self, name, value)

    async def close(self) -> None:
        """Release models, processes, workspaces and the directories of the skills."""
        await self.resources.aclose()

    async def forget(self, key_text: str) -> str:
        """Erase what this process has of a key: processes, workspace, artifacts and media.

        Return what could not be erased, an empty string if everything was.
        """
        owner = owner_of(self.plan.operator_name, key_text)
        workspaces, artifacts = self.workspaces, self.services.artifacts
        try:
            for agent in self.tree():
                agent.media.forget(owner)
                if agent.services.sessions is not None:
                    await agent.services.sessions.forget(owner)
                if workspaces is not None and agent.services.bundled is not None:
                    await agent.services.bundled.forget(str(workspaces.for_key(key_text).root))
            if workspaces is not None:
                await asyncio.to_thread(workspaces.for_key(key_text).remove)
            if artifacts is not None:
                await asyncio.to_thread(artifacts.forget, owner)
        except Exception as error:  # of stores and files
            return error_text(error)
        return ""

    def tree(self) -> Iterator[OpenAgent]:
        """Yield this agent, and all agents that it can call."""
        yield self
        for callee in self.callees.values():
            yield from callee.tree()

    @property
    def manager(self) -> AgentSkillManager:
        """The loaded skills."""
        return self.skills.manager

    @property
    def generation(self) -> Generation:
        """Models, skills and tools for turns that begin now."""
        return self.skills.generation

    def new_state(self, kept: StoredState) -> Any:
        """Return ``ctx.state`` from its stored form. Raises :class:`TurnError` if that does not fit its type."""
        return new_state(self.declared.state_type, kept)

    def assigned_state(self, value: Any) -> Any:
        """Return the state for ``ctx.state = value``. Raises :class:`TurnError` for a value that cannot be a state."""
        return assigned_state(self.declared.state_type, value)

    @property
    def has_plain_state(self) -> bool:
        """True if ``ctx.state`` is a dict. It then has only the keys that the agent's code assigned."""
        return self.declared.state_type is None

    def session_id(self, event: Any) -> str:
        """Return the id of the conversation that an event belongs to. Raises :class:`TurnError`."""
        return _conversation_id(self.agent.session_selector, event)

    # Reported to operators.

    @property
    def isolation(self) -> str:
        """The name of the isolation level of commands."""
        return isolation_of(self.services)

    def without_hidden(self, text: str) -> str:
        """Return ``text`` without the values of ``skills.env``, and of references in ``skills.user``, read so far."""
        for hidden in self._hidden:
            text = hidden.in_text(text)
        return text

    def begun_hidden(self, text: str) -> int:
        """Return how many characters at the end of ``text`` may be the beginning of such a value."""
        return max(hidden.begun_in_text(text) for hidden in self._hidden)

    @property
    def _hidden(self) -> tuple[HiddenValues, ...]:
        shell, own = self.services.shell, self.host.options.hidden
        return (own,) if shell is None else (shell.hidden, own)

    def figures(self) -> dict[str, int]:
        """Return the values of metrics: the skills with those of agents that are tools, and the isolation level."""
        agents = list(self.tree())
        summaries = [agent.manager.summary() for agent in agents]

        def total(name: str) -> int:
            return sum(summary[name] for summary in summaries)

        of_tools: Counter[str] = Counter()
        for agent in agents:
            for toolset in agent.declared.all_toolsets:
                of_tools.update(toolset.figures())
        shell = self.services.shell
        return {
            **of_tools,
            **({"isolationLevel": int(shell.level)} if shell is not None else {}),
            "skills": total("skills"),
            "diagnosticErrors": total("errors"),
            "diagnosticWarnings": total("warnings"),
            "diagnosticInfos": total("infos"),
            "failedSources": total("failed_sources"),
            "generation": self.generation.number,
            "refreshes": sum(agent.skills.figures.refreshes for agent in agents),
            "refreshFailures": sum(agent.skills.figures.failures for agent in agents),
        }

    def report(self) -> dict[str, Any]:
        """Return what a worker reports to its operator after it opened the agent."""
        shell = self.services.shell
        return {
            "agent": self.plan.agent_id,
            "skills": [skill.name for skill in self.manager.get_skills()],
            "models": {name: list(model.view.names) for name, model in self.generation.models.items()},
            "diagnostics": len(self.manager.diagnostics),
            "isolation": self.isolation,
            "isolation_report": shell.report.to_json() if shell is not None else None,
        }


def isolation_of(services: ToolServices) -> str:
    """Return the name of the isolation level of the commands of an agent."""
    return services.shell.level.name if services.shell is not None else "none: no commands"


class Hooks(NamedTuple):
    """The hooks that an agent overrides."""

    before_model: bool = False
    around_tool: bool = False
    evict: bool = False

    @classmethod
    def of(cls, agent: Agent) -> Hooks:
        """Return the hooks that ``agent`` overrides, in its class or in the instance."""
        own = vars(agent)
        return cls(*(name in own or getattr(type(agent), name) is not getattr(Agent, name) for name in cls._fields))


_MAX_CHARACTERS = 256


def _conversation_id(selector: Callable[[Any], Any] | str | None, event: Any) -> str:
    """Return the id that ``Agent.session_selector``, a function or the name of a field, gives for an event.

    Return an empty text without a selector, and for an event without an id. Raises :class:`TurnError` if the selector
    raises, or its result is neither a text nor an integer.

    >>> _conversation_id("thread", {"thread": 7})
    '7'
    """
    if selector is None:
        return ""
    try:
        if callable(selector):
            found = selector(event)
        else:
            found = event.get(selector) if isinstance(event, Mapping) else getattr(event, selector, None)
    except BaseException as error:  # the user's code, and the user's objects
        raise TurnError(f"session_selector failed: {error_text(error)}") from error
    if found is None:
        return ""
    if isinstance(found, bool) or not isinstance(found, (str, int)):
        raise TurnError(f"session_selector returned {type(found).__name__}; expected a string or a whole number")
    if len(text := str(found)) > _MAX_CHARACTERS:
        raise TurnError(f"session_selector returned {len(text):,} characters; the maximum is {_MAX_CHARACTERS}")
    return text
