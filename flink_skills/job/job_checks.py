"""``flink-skills run JOB.yaml --check``: checks of a job before it is submitted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.agent_file import with_absolute_paths
from flink_skills.agents.plan.declarative import DeclarativeAgent
from flink_skills.agents.plan.name_checks import NamedAgent
from flink_skills.agents.plan.plan import AgentPlan, ModelPlan
from flink_skills.agents.rows.table_rows import RecordRows
from flink_skills.documents.document import DocumentError, Problem
from flink_skills.errors import ConfigError, SkillsError, counted
from flink_skills.job.agent_building import AgentBuilder
from flink_skills.job.building import JobBuilder, job_warnings
from flink_skills.job.host_requirements import agent_requirements, job_requirements
from flink_skills.job.job_reading import ReadJob, inspect_job
from flink_skills.job.shared_resources import problems_of_declared, sound_part
from flink_skills.job.skills_and_servers import VisibleSkills, declared_servers, reached_servers, visible_skills
from flink_skills.job.stages import Stage
from flink_skills.models.fallback import Fallback
from flink_skills.models.messages import ModelRequest, UserMessage
from flink_skills.models.registry import create_model
from flink_skills.options import SkillConfig, SkillOptions

if TYPE_CHECKING:
    from flink_skills.flink.job_graph import JobGraph

Status = Literal["ok", "error", "warning", "unknown"]
T = TypeVar("T")
# Maximum of output tokens of the request that checks a model.
_FEW_TOKENS = 16
_REACH_TIMEOUT = 30.0


@dataclass(frozen=True)
class Check:
    """Result of one check. ``unknown``: this host cannot do the check, for the reason in ``message``."""

    name: str
    status: Status
    message: str
    problem: Problem | None = None

    def to_json(self) -> dict[str, Any]:
        place = self.problem.place if self.problem is not None else None
        return {
            "check": self.name,
            "status": self.status,
            "message": self.message,
            "file": self.problem.file if self.problem is not None else None,
            "line": place.line if place is not None else None,
            "column": place.column or None if place is not None else None,
            "path": list(self.problem.path) if self.problem is not None else None,
        }


@dataclass
class CheckReport:
    """All checks of a job, in their order."""

    checks: list[Check] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """True if no check has found an error. Unknown results are not errors."""
        return all(check.status != "error" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.sound, "checks": [check.to_json() for check in self.checks]}


def check_job(
    path: str | Path,
    assignments: Iterable[str] = (),
    *,
    reach: bool = False,
    note: Callable[[Check], None] | None = None,
) -> CheckReport:
    """Check a job file on this host. ``note`` receives each result.

    ``reach`` also loads every source of skills, connects to each MCP server and sends a request to each chat model.
    The job is not submitted. Warnings that the package logs are results.
    """
    checker = _Checker(note, reach=reach)
    logger = logging.getLogger("flink_skills")
    logger.addFilter(checker.add_logged)
    try:
        return checker.run(path, assignments)
    finally:
        logger.removeFilter(checker.add_logged)


class _Checker:
    def __init__(self, note: Callable[[Check], None] | None, *, reach: bool) -> None:
        self._note, self._reach = note, reach
        self._report = CheckReport()
        self._hide: Callable[[str], str] = lambda text: text

    def run(self, path: str | Path, assignments: Iterable[str]) -> CheckReport:
        read = self._step("file", lambda: inspect_job(path, assignments))
        if read is None:
            return self._report
        self._hide = read.references.hide
        # A problem of one part does not stop the checks of the others.
        self._add_problems("file", read.problems)
        if not read.problems:
            options = len(list(read.settings.skills)) + len(read.settings.flink)
            counts = f"{counted(len(read.statements), 'statement')}, {counted(options, 'option')}"
            self._ok("file", f"{read.file.name}: {counts}")
        self._add_problems("references", read.missing)
        builder = JobBuilder(read, local=True)
        agents = self._agents(builder)
        graph = self._graph(builder)
        if graph is not None:
            self._tables(builder, graph, agents)
        return self._report

    def add_logged(self, record: logging.LogRecord) -> bool:
        """Add a warning to the report. Return False for it: it is not logged as well."""
        if record.levelno < logging.WARNING:
            return True
        if all(check.message != self._hide(record.getMessage()) for check in self._report.checks):
            self._add("warning", "warning", record.getMessage())
        return False

    def _agents(self, builder: JobBuilder) -> dict[str, Agent]:
        """Load the agents whose sections can be used, and return them by name."""
        found: dict[str, Agent] = {}
        for each in builder.agents:
            if each.stage.agent_at in builder.read.broken:
                continue
            agent = self._step("agent", each.load)
            if agent is not None:
                found[each.stage.name] = agent
        # Models and connections may be of a provider that the module of an agent registers.
        self._step("agent", lambda: self._add_problems("agent", problems_of_declared(builder.read)))
        return found

    def _graph(self, builder: JobBuilder) -> JobGraph | None:
        try:
            import flink_skills.flink.job_graph  # noqa: F401 - only whether it is there
        except ImportError as error:
            message = (
                f"{error.name} is not installed here, so tables, columns and connectors are not checked: pip install "
                "'flink-skills[flink]'"
            )
            self._add("flink", "unknown", message)
            return None
        problems: list[Problem] = []
        graph = self._step("flink", lambda: builder.open_graph(problems.append))
        self._add_problems("flink", problems)
        if graph is not None and not problems:
            self._ok("flink", "Flink takes the options")
        return graph

    def _tables(self, builder: JobBuilder, graph: JobGraph, agents: Mapping[str, Agent]) -> None:
        read = builder.read
        self._step("flink", lambda: self._add_problems("flink", job_requirements(builder)))
        if self._passes("tables", builder.define_tables) and not _is_broken(read, "tables"):
            self._ok("tables", ", ".join(statement.title for statement in read.statements))
        for each in builder.agents:
            self._agent(builder, each, graph, agents.get(each.stage.name))
        controlled = self._passes("control", builder.check_control)
        if controlled and (section := read.job.control) is not None:
            self._ok("control", f"records of {section.table or 'a query'}")
        if all(each.plan is None for each in builder.agents):
            self._sources(builder.read, graph)
        # All agents are checked first, because the outputs of one are the input of another.
        filled = [each for each in builder.agents if self._fill(builder, each)]
        # Tables are checked also if nothing can be connected, because their options are independent of agents.
        connected = self._connectors(builder)
        if connected and controlled and filled and len(filled) == len(builder.agents):
            self._plan(builder)
        if self._reach:
            for each in builder.agents:
                if each.plan is not None:
                    self._models(each.stage, each.plan)
                    self._servers(each.stage, each.named)
        self._names(builder)
        for warning in job_warnings(builder):
            self._add("warning", "warning", warning)

    def _agent(self, builder: JobBuilder, each: AgentBuilder, graph: JobGraph, agent: Agent | None) -> None:
        """Check the input and the plan of one agent."""
        read, stage = builder.read, each.stage
        shape = None if stage.path("input") in read.broken else self._step("input", each.find_input)
        keyed = shape is not None and stage.path("input", "key") not in read.broken
        if shape is not None and keyed and self._passes("input", partial(each.check_columns, shape)):
            time_of = ", with event time" if shape.has_rowtime else ""
            number = len(shape.columns)
            count = f"{number} or more columns" if shape.is_open else counted(number, "column")
            self._ok("input", stage.title(f"{count}, key {', '.join(each.keys)}{time_of}"))
        if self._passes("answers", each.check_answers) and (answers := stage.answers) is not None:
            self._ok("answers", stage.title(f"key {', '.join(stage.answer_keys)}, wait {answers.wait_id}"))
        if agent is None or _is_broken(read, "skills"):
            return  # without the skills of the job, names of skills would be wrong
        # The next step looks at sources, which only the cluster may have.
        plan = self._step("agent", lambda: each.compile(agent, check_skills=False))
        if plan is not None:
            models = ", ".join(map(_model_title, plan.models)) or "no model"
            routed = f"; {plan.route.described()}" if plan.route is not None else ""
            self._ok("agent", f"agent {stage.name or plan.agent_id}: {models}{routed}")
            for approvals in each.approvals():
                whose = "" if approvals.agent == plan.agent_id else f"agent {approvals.agent}: "
                status: Status = "ok" if approvals.by is not None else "warning"
                self._add("approvals", status, stage.title(f"{whose}{approvals}"))
            self._skills(stage, graph, plan)
            self._step("machine", lambda: self._add_problems("machine", agent_requirements(builder, each, plan)))
            if not self._reach:
                self._programs(stage, agent)

    def _fill(self, builder: JobBuilder, each: AgentBuilder) -> bool:
        """Check the tables of one agent, and return whether it can be connected."""
        read, stage, shape = builder.read, each.stage, each.shape
        broken = [stage.path(role)[:1] for role in ("output", "errors", "events", "waits")]
        if shape is None or _is_broken(read, "agents") or any(path in read.broken for path in broken):
            self._step("columns", each.check_tables)
            return False
        warnings = len(builder.warnings)
        filled = self._step("columns", lambda: each.fill_tables(shape))
        if each.plan is None:
            # Without the plan nothing is known of the outputs.
            del builder.warnings[warnings:]
            return False
        if filled is None:
            return False
        self._columns(stage, filled)
        return stage.path("input", "key") not in read.broken and any(name in shape.names for name in each.keys)

    def _sources(self, read: ReadJob, graph: JobGraph) -> None:
        """Check the sources of skills of a job whose agents cannot be compiled."""
        agent = read.document.data.get("agent")
        spec = sound_part(read, agent, ("agent",)) if isinstance(agent, Mapping) else {}
        skills = {"skills": spec["skills"]} if "skills" in spec else {}
        spec = with_absolute_paths({"name": read.job.name, "model": "offline", **skills}, read.folder, read.document)
        try:
            plan = graph.compile(DeclarativeAgent.from_spec(spec), check_skills=False)
            if plan.scopes:
                self._diagnose(visible_skills(plan, graph, remote=self._reach))
        except SkillsError as error:
            self._add("skills", "error", str(error))

    def _programs(self, stage: Stage, agent: Agent) -> None:
        """Check that the programs of MCP servers exist. Nothing is started."""
        for server in declared_servers(agent):
            if server.problem is not None:
                status: Status = "error" if server.required else "warning"
                self._add("servers", status, stage.title(server.problem))

    def _skills(self, stage: Stage, graph: JobGraph, plan: AgentPlan) -> None:
        if not plan.scopes:
            self._ok("skills", stage.title("the job has no source of skills"))
            return
        try:
            visible = visible_skills(plan, graph, remote=self._reach)
        except SkillsError as error:
            self._add("skills", "error", stage.title(str(error)))
            return
        self._diagnose(visible, stage)
        for model in visible.models:
            self._ok("skills", stage.title(f"model {model.model}: {', '.join(model.skills) or 'none'}"))

    def _diagnose(self, skills: VisibleSkills, stage: Stage | None = None) -> None:
        title = stage.title if stage is not None else str
        if skills.unread_sources:
            message = f"unchecked without --reach: {', '.join(skills.unread_sources)}"
            self._add("skills", "unknown", title(message))
        for diagnostic in skills.diagnostics:
            if diagnostic.severity != "info":
                place = f"{diagnostic.skill or diagnostic.path}: " if diagnostic.skill or diagnostic.path else ""
                self._add("skills", "warning", title(f"{place}{diagnostic.code} {diagnostic.message}"))

    def _columns(self, stage: Stage, filled: RecordRows) -> None:
        for fill in (filled.output, filled.errors, filled.events, filled.waits):
            if fill is not None:
                of = ", ".join(f"{c.name} ← {c}" for c in fill.columns)
                self._ok("columns", stage.title(f"{fill.table}: {of}"))
        for name, event in filled.next.items():
            of = ", ".join(f"{field} ← {'.'.join(path)}" for field, path in event.fields.items())
            self._ok("columns", stage.title(f"agent {name}: {of or 'the event, and the fields of the output'}"))

    def _connectors(self, builder: JobBuilder) -> bool:
        """Check the connectors and formats of all tables, and return whether all are on this machine and sound."""
        steps = dict(builder.connector_checks())
        passed = [self._passes("connectors", step) for step in steps.values()]
        return all(passed)

    def _plan(self, builder: JobBuilder) -> None:
        def connect() -> None:
            keys = {}
            for each in builder.agents:
                names = () if each.shape is None else each.shape.names
                keys[each.stage.name] = [name for name in dict.fromkeys(each.keys) if name in names]
            builder.connect(keys)
            builder.graph.flink_plan()

        if self._passes("connectors", connect):
            self._ok("connectors", "every table has its connector, and Flink can plan the job")

    def _models(self, stage: Stage, plan: AgentPlan) -> None:
        for model in _requested_models(plan):
            started = time.monotonic()
            title = stage.title(f"model {model.name} ({model.setup.label})")
            try:
                text = asyncio.run(_ask(model, SkillConfig(plan.options)))
            except SkillsError as error:
                self._add("models", "error", f"{title}: {error}")
                continue
            seconds = time.monotonic() - started
            self._ok("models", f"{title} answered in {seconds:.1f} s{text}")

    def _names(self, builder: JobBuilder) -> None:
        """Check the names of tools and skills, and report what they match. Servers that were reached have tools."""
        builder.read_skill_names(remote=self._reach)
        self._step("names", builder.check_names)
        for match in builder.name_matches():
            if not match.problem and not match.use.approves:  # those are with the approvals
                self._ok("names", str(match))

    def _servers(self, stage: Stage, tree: Sequence[NamedAgent]) -> None:
        for server in reached_servers(tree):
            if server.problem is None:
                self._ok("servers", stage.title(f"{server.title} answers"))
            elif server.required:
                self._add("servers", "error", stage.title(server.problem))
            else:
                message = f"{server.problem} (required is false: the job opens without them)"
                self._add("servers", "warning", stage.title(message))

    def _step(self, name: str, step: Callable[[], T]) -> T | None:
        try:
            return step()
        except DocumentError as error:
            self._add_problems(name, error.problems)
        except SkillsError as error:
            self._add(name, "error", str(error))
        return None

    def _passes(self, name: str, step: Callable[[], None]) -> bool:
        """Return True if a step finds no problem."""

        def passed() -> bool:
            step()
            return True

        return self._step(name, passed) is True

    def _add_problems(self, name: str, problems: Iterable[Problem]) -> None:
        for problem in DocumentError(list(problems)).problems:
            if problem.not_here is None:
                self._add(name, "error", str(problem), problem)
                continue
            kind, what = problem.not_here
            fix = "name its jar under 'jars', or check where it is"
            if kind not in ("connector", "format", "catalog"):
                fix = "the job needs it on each machine that runs it"
            message = f"the {kind} {what!r} is not here, so what depends on it is not checked: {fix}"
            self._add(name, "unknown", message, problem)

    def _ok(self, name: str, message: str) -> None:
        self._add(name, "ok", message)

    def _add(self, name: str, status: Status, message: str, problem: Problem | None = None) -> None:
        # The only way into the report: names and connectors may contain values of references, too.
        problem = problem and replace(problem, message=self._hide(problem.message))
        check = Check(name, status, self._hide(message), problem)
        if problem is not None and check in self._report.checks:
            return  # another step found the same problem
        self._report.checks.append(check)
        if self._note is not None:
            self._note(check)


def _is_broken(read: ReadJob, *sections: str) -> bool:
    return any((section,) in read.broken for section in sections)


def _requested_models(plan: AgentPlan) -> Iterator[ModelPlan | Fallback]:
    """Yield the chat models of an agent, and the fallbacks that are not among them."""
    own = [model.name for model in plan.models]
    for model in plan.models:
        yield model
        yield from (each for each in model.fallback if each.name not in own)


def _model_title(model: ModelPlan) -> str:
    then = "".join(f", then {each.name}" for each in model.fallback)
    return f"{model.name} ({model.setup.label}{then})"


async def _ask(model: ModelPlan | Fallback, config: SkillConfig) -> str:
    """Send a short request to a model. Raises :class:`SkillsError`."""
    timeout = min(config.get(SkillOptions.MODEL_TIMEOUT), _REACH_TIMEOUT)
    chat = create_model(model.setup, config)
    try:
        settings = {**model.setup.settings, "max_tokens": _FEW_TOKENS}
        request = ModelRequest(
            system="Answer with one word.",
            messages=[UserMessage("Are you there?")],
            settings=settings if model.setup.provider != "offline" else {},
            timeout=timeout,
        )
        try:
            response = await asyncio.wait_for(chat.request(request), timeout)
        except asyncio.TimeoutError:
            raise ConfigError(f"the model did not answer within {timeout:g} s") from None
    finally:
        await chat.close()
    return "" if response.text.strip() or response.tool_calls else ", with nothing"
