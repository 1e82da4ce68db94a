"""Builder of the job of a file, step by step. Errors have a location in the file."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.agent_file import absolute_path
from flink_skills.agents.plan.declarative import DeclarativeAgent
from flink_skills.agents.plan.name_checks import job_matches, own_matches
from flink_skills.agents.plan.spec import SkillsSection, SourcePins
from flink_skills.documents.document import DocumentError, Path, Problem, path_text
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.job.agent_building import AgentBuilder
from flink_skills.job.agent_source import AgentSources
from flink_skills.job.agent_tables import BuildContext, require, table_warnings
from flink_skills.job.job_reading import ReadJob
from flink_skills.job.shared_resources import add_resources
from flink_skills.job.skills_and_servers import with_visible_skills
from flink_skills.job.wait_answers import shape_of_rows
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.tool_names import NameMatch

if TYPE_CHECKING:
    from flink_skills.agents.plan.plan import AgentPlan
    from flink_skills.flink.agents_environment import AgentsExecutionEnvironment
    from flink_skills.flink.job_graph import JobGraph


class JobBuilder:
    """Builds one job. The steps come in the order of the methods; each raises :class:`DocumentError` for what is wrong.

    ``agents`` are the builders of its agents, sources before targets.

    >>> JobBuilder(read_job("job.yaml"), local=True).build().execute("job")  # doctest: +SKIP
    """

    def __init__(
        self, read: ReadJob, *, local: bool, failed: FilePath | None = None, folder: FilePath | None = None
    ) -> None:
        """Create the builder.

        Args:
            read: The file.
            local: The job runs in a mini cluster of this process.
            failed: Error records of the job, whose events take the place of its input.
            folder: An empty folder for files of the job, which outlives the job. ``failed`` needs it, and so do the
                modules next to the file.
        """
        self.read = read
        self._local = local
        self._failed = failed
        self._folder = folder
        # A statement that did not run may have created a table that is missing.
        self.context = BuildContext(read, all_defined=("tables",) not in read.broken)
        sources = AgentSources(read)
        builders: dict[str, AgentBuilder] = {}
        for stage in read.stages:
            builders[stage.name] = AgentBuilder(self.context, stage, sources, builders)
        self.agents = list(builders.values())

    @property
    def warnings(self) -> list[str]:
        """Warnings for the users who start the job."""
        return self.context.warnings

    @property
    def graph(self) -> JobGraph:
        """The job graph."""
        return self.context.graph

    def prepare(self, *, check_skills: bool = True) -> JobGraph:
        """Load the agents, open Flink, run the DDL, and compile each agent for its input.

        ``check_skills=False`` leaves the sources of skills alone.
        """
        loaded = [agent.load() for agent in self.agents]
        graph = self.open_graph()
        self.define_tables()
        for agent, code in zip(self.agents, loaded, strict=True):
            agent.check_columns(agent.find_input())
            agent.check_answers()
            agent.compile(code, check_skills=check_skills)
        self.check_control()
        self.check_names()
        return graph

    def _label_problems(self) -> Iterator[Problem]:
        """Yield a problem for each label of metrics whose field is a column of no input."""
        shapes = [agent.shape for agent in self.agents if agent.shape is not None]
        if any(shape.is_open for shape in shapes):
            return
        columns = list(dict.fromkeys(name for shape in shapes for name in shape.names))
        option = SkillOptions.METRICS_LABELS
        for label in effective_options(self.graph).get(option):
            field = label.partition("=")[2]
            if field not in columns and field.partition(".")[0] not in columns:
                message = str(UnknownNameError("column", field, columns, place=f"option {option.key}"))
                yield from self.read.problem(self._place_of_option(f"option {option.key}:"), message).problems

    def name_matches(self) -> list[NameMatch]:
        """Return what the names of tools and skills in agents and options match.

        Those in options are compared when all agents are compiled.
        """
        trees = [agent.named for agent in self.agents]
        found = [match for tree in trees for named in tree for match in own_matches(named)]
        return [*found, *(job_matches(trees) if all(trees) else ())]

    def read_skill_names(self, *, remote: bool) -> None:
        """Read the names of skills, if options contain some. ``remote`` also reads the sources that are URLs."""
        for each in self.agents:
            config = SkillConfig({} if each.plan is None else each.plan.options)
            families = map(config.family, (SkillOptions.SKILL_ENV, SkillOptions.PLUGINS_ENV))
            if any(families) or config.get(SkillOptions.PLUGINS_SERVERS):
                each.named = [with_visible_skills(named, self.graph, remote=remote) for named in each.named]

    def check_names(self) -> None:
        """Check these names, and those of columns in ``skills.metrics.labels``.

        Raises :class:`DocumentError` for names that match nothing, and that nothing can bring.
        """
        problems = list(self._label_problems())
        for match in self.name_matches():
            if match.is_error:
                key = match.use.place.removeprefix("option ")
                in_file = key in self.read.job.options
                path: Path = ("options", key) if in_file else ()
                problems += self.read.problem(path, match.reason if in_file else match.problem).problems
        if problems:
            raise DocumentError(problems)

    def build(self) -> JobGraph:
        """Take all steps, and return the job, which is ready to run."""
        if self._failed is not None and len(self.agents) > 1:
            raise ConfigError(
                f"--input {self._failed}: a job with several agents has no one input; to run failed events again, "
                "insert them into the table that the agent reads"
            )
        graph = self.prepare()
        # The events of an agent depend on the keys of the agents behind it.
        for agent in self.agents:
            agent.fill_tables(require(agent.shape, "find_input"))
            if self._failed is not None:
                agent.replace_input(self._failed, require(self._folder, "folder"))
        self.connect({})
        return graph

    def connect(self, keys: Mapping[str, Sequence[str]]) -> None:
        """Add the agents to the job. This needs the connectors of the tables.

        ``keys`` are other key columns than those of the file, by the name of the agent.
        """
        context, section = self.context, self.read.job.control
        if section is not None:
            read = partial(context.graph.read_control, table=section.table, query=section.query)
            context.control = context.run_for_table(self.control_at, section.table, read)
        for agent in self.agents:
            agent.connect(keys=keys.get(agent.stage.name))

    def connector_checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the checks of :meth:`AgentBuilder.connector_checks`, and that of the control records."""
        for agent in self.agents:
            yield from agent.connector_checks()
        section = self.read.job.control
        if section is not None and shape_of_rows(self.context, ("control",), section, []) is not None:
            check = partial(self.graph.check_source, table=section.table, query=section.query)
            of = section.query or section.table
            yield f"source {of}", partial(self.context.run_for_table, self.control_at, section.table, check)

    @property
    def control_at(self) -> Path:
        """The path of the table or the query of control records."""
        section = self.read.job.control
        return ("control", "table" if section is None or section.query is None else "query")

    def check_control(self) -> None:
        """Check the columns of the control records."""
        section = self.read.job.control
        if section is None or ("control",) in self.read.broken:
            return
        from flink_skills.flink.keyed_streams import CONTROL_FIELDS

        problems: list[Problem] = []
        shape = shape_of_rows(self.context, ("control",), section, problems)
        if shape is not None:
            place = "the query of control" if section.table is None else f"table {section.table}"
            targets = [name for name in shape.names if name in ("agent", "skill", "tool", "key")]
            if "action" not in shape.names or not targets:
                what = "agent, skill, tool or key" if "action" in shape.names else "action"
                message = f"{place} has no column {what}: add it. Control records have {', '.join(CONTROL_FIELDS)}"
                problems += self.read.problem(self.control_at, message).problems
        inputs = {stage.table for stage in self.read.stages if stage.table is not None}
        if section.table in inputs:
            message = f"{section.table!r} is also an input, so each event would be a control record: use another table"
            problems += self.read.problem(self.control_at, message).problems
        if problems:
            raise DocumentError(problems)

    def open_graph(self, note: Callable[[Problem], None] | None = None) -> JobGraph:
        """Open and return a job graph with the job's options and jars.

        ``note`` receives each problem of them, and the job graph opens without these. Without ``note`` they are raised.
        """
        try:
            from flink_skills.flink.bridge import start_java
            from flink_skills.flink.job_graph import JobGraph, refused_options
            from flink_skills.flink.option_keys import refused_values
        except ImportError as error:
            raise ConfigError(f"{error.name} is not installed: pip install 'flink-skills[flink]'") from error
        start_java()
        read = self.read
        options = dict(read.settings.flink)
        if self._local:
            # A free port, so that two runs on one host do not conflict.
            options = {"rest.port": "0", **options}
        jars, problems = self._jars() if self._local else ([], [])
        refused = refused_values(options)
        graph: JobGraph | None = None
        try:
            graph = JobGraph({key: options[key] for key in options if key not in refused}, jars)
        except SkillsError:
            # Each option alone, to find the rejected one. If there is none, the error is reported below.
            refused = refused_options(options)
        problems += [self.option_problem(key, message) for key, message in refused.items()]
        if problems and note is None:
            raise DocumentError(problems)
        for problem in problems:
            if note is not None:
                note(problem)
        try:
            graph = graph or JobGraph({key: options[key] for key in options if key not in refused}, jars)
            add_to_environment(read, graph.agents)
            self._ship_modules(graph)
        except DocumentError:
            raise
        except SkillsError as error:
            place = self._place_of_option(str(error))
            if not place:
                # The option is in the configuration of Flink instead of the file.
                raise ConfigError(read.references.hide(str(error))) from None
            raise read.problem(place, str(error)) from error
        self.context.opened = graph
        return graph

    def _ship_modules(self, graph: JobGraph) -> None:
        """Send the modules next to the file with the job. A mini cluster finds them where they are."""
        if self._folder is not None and not self._local:
            target = self._folder / "modules"
            if copy_modules(self.read.folder, target):
                graph.add_modules(target)

    def define_tables(self) -> None:
        """Run all DDL statements, including those after a failed one."""
        from flink_skills.flink.flink_failures import SqlError

        problems: list[Problem] = []
        for statement in self.read.statements:
            try:
                self.context.graph.define(statement.text)
            except SqlError as error:
                problems.append(self.context.problem(("tables",), error, statement))
        if problems:
            self.context.all_defined = False
            raise DocumentError(problems)

    def event_rows(self, *, follow: bool) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the rows of the tables of events as events, each with its table.

        With ``follow``, the rows continue as the job writes them. Raises :class:`ConfigError` without such a table.
        """
        sections = {stage.events.table: stage.events for stage in self.read.stages if stage.events is not None}
        if not sections:
            raise ConfigError(f"{self.read.file}: the job has no table of events; add 'events: {{table: NAME}}' to it")
        if follow and len(sections) > 1:
            names = ", ".join(sections)
            raise ConfigError(f"{self.read.file}: --follow reads one table of events, and the job has {names}; omit it")
        self.open_graph()
        self.define_tables()
        for table, section in sections.items():
            fields = {column: source for column, source in section.columns.items() if isinstance(source, str)}
            for row in self.graph.rows(table, follow=follow):
                yield f"table {table}", {fields.get(column, column): value for column, value in row.items()}

    def option_problem(self, key: str, message: str) -> Problem:
        """Return a problem at an option of Flink, wherever it is set."""
        keys = self.read.document.keys
        path = next((path for path in keys if path[:1] == ("flink",) and ".".join(map(str, path[1:])) == key), ())
        if not path:
            message = f"{key}: {message}"
        return self.read.problem(path or ("flink",), message).problems[0]

    def _jars(self) -> tuple[list[FilePath], list[Problem]]:
        """Return the jars that exist, and the problems of the others."""
        found: list[FilePath] = []
        problems: list[Problem] = []
        for number, jar in enumerate(self.read.job.jars):
            path = (self.read.folder / jar.removeprefix("file://")).absolute()
            if path.is_file():
                found.append(path)
            else:
                problems += self.read.problem(("jars", number), f"there is no file {path}").problems
        return found, problems

    def _place_of_option(self, message: str) -> Path:
        """Return the path of the option that an error is about. It is empty if the file does not set the option."""
        for key in self.read.job.options:
            if f"option {key}:" in message:
                return ("options", key)
        for key in self.read.job.flink:
            if f"'{key}'" in message:
                return ("flink", key)
        return ()


def add_to_environment(read: ReadJob, agents_env: AgentsExecutionEnvironment) -> None:
    """Add what the agents of a job share: its options, skills, connections, chat models and prompts.

    Raises :class:`SkillsError`, or :class:`DocumentError` at the place of a resource that is wrong.
    """
    config = agents_env.get_config()
    for key in read.settings.skills:
        config.set(key, read.settings.skills.get(key))
    section = read.job.skills
    if section is not None:
        paths = [absolute_path(item, read.folder) for item in sources_of(section, "paths")]
        agents_env.add_skills_from_paths(paths)
        agents_env.add_skills_from_resources(sources_of(section, "resources"))
        agents_env.add_skills_from_urls(sources_of(section, "urls"))
    add_resources(read, agents_env)


def sources_of(section: SkillsSection, kind: str) -> list[Any]:
    """Return the sources of one kind in the format of the environment."""
    return [
        item.model_dump(exclude_none=True) if isinstance(item, SourcePins) else item for item in getattr(section, kind)
    ]


def effective_options(graph: JobGraph) -> SkillConfig:
    """Return all options ``skills.*`` of the job."""
    return graph.agents.get_config().effective()


# Parts of keys whose values Flink hides.
_SECRET_OPTION = re.compile(
    r"'([^'\n]*(?:password|secret|api[-_.]?key|token|private[-_.]?key|sas[-_.]key|credential)[^'\n]*)'\s*=\s*"
    r"'((?:[^']|'')*)'",
    re.IGNORECASE,
)
_CHECKPOINTING = "execution.checkpointing.interval"


def job_warnings(builder: JobBuilder) -> list[str]:
    """Return warnings for the users who start the job."""
    from flink_skills.flink.option_keys import misspelled_options

    read, graph = builder.read, builder.graph
    found = [*builder.warnings, *_unasked_models(read, builder.agents)]
    found += [match.problem for match in builder.name_matches() if match.problem and not match.is_error]
    if read.job.errors is None and effective_options(graph).get(SkillOptions.TURN_ON_ERROR) == "emit":
        found.append(
            "there is no 'errors' table: a turn that fails is only in the log of its TaskManager (or set "
            "skills.turn.on-error: fail)"
        )
    found += dict.fromkeys(message for stage in read.stages for message in table_warnings(read, stage))
    if graph.option(_CHECKPOINTING) in (None, "", "0", "0 ms", "0 s", "0ms", "0s"):
        found.append(
            f"checkpoints are disabled ({_CHECKPOINTING}): after a failure the job does not restart, and conversations "
            "and turns in progress are lost"
        )
    if not graph.is_local and read.settings.cluster_only:
        keys = ", ".join(read.settings.cluster_only)
        found.append(f"a running cluster does not accept {keys} from a job")
    for key, near in misspelled_options(read.settings.flink).items():
        found.append(f"flink: Flink has no option {key!r}, did you mean {near!r}?")
    tables = read.document.data.get("tables")
    for match in _SECRET_OPTION.finditer(tables if isinstance(tables, str) else ""):
        if match[2] and "${" not in match[2]:
            found.append(f"tables: {match[1]!r} has its value in the file: write ${{env:NAME}} or ${{file:/path}}")
    return found


_WITHOUT_CODE = f"{DeclarativeAgent.__module__}:{DeclarativeAgent.__qualname__}"


def _unasked_models(read: ReadJob, agents: Sequence[AgentBuilder]) -> list[str]:
    """Return a message for each chat model that receives no request.

    An agent without code uses its first chat model. Code may use any chat model and is not reported.
    """
    shared = list(read.job.models or ())
    messages, asked = [], set[str]()
    for each in agents:
        if each.plan is None or each.source is None:
            return []  # an unknown agent may use any model
        code = type(each.source.agent).on_event
        has_code = code not in (Agent.on_event, DeclarativeAgent.on_event)
        for plan, may_ask_all in _plans(each.plan, has_code=has_code):
            names = [model.name for model in plan.models]
            asked.update(names if may_ask_all else names[:1])
            if may_ask_all or not names:
                continue
            for name in names[1:]:
                if name not in shared:
                    where = _place(each, name) if plan is each.plan else f"agent {plan.agent_id}"
                    messages.append(
                        f"{where}: chat model {name!r} is declared and never asked: an agent without its own code "
                        f"asks only its first chat model, {names[0]!r}"
                    )
    messages += [
        f"models.{name}: the chat model is declared and never asked; name it as 'model' of an agent, or remove it"
        for name in shared
        if name not in asked
    ]
    return list(dict.fromkeys(messages))


def _plans(plan: AgentPlan, *, has_code: bool) -> Iterator[tuple[AgentPlan, bool]]:
    """Yield a plan and those of the agents that it calls, each with whether its code may ask any model."""
    yield plan, has_code
    for callee in plan.agents.values():
        yield from _plans(callee, has_code=callee.agent.get("class") != _WITHOUT_CODE)


def _place(agent: AgentBuilder, name: str) -> str:
    source = agent.source
    if source is None or source.document is None:
        return agent.stage.title(f"agent {agent.plan.agent_id}" if agent.plan is not None else "agent")
    own = source.spec.get("chat_model_setups") or {}
    path = ("chat_model_setups", name) if name in own else ("model",)
    return path_text((*source.at, *path))


_OWN = __name__.partition(".")[0]


def copy_modules(source: FilePath, target: FilePath) -> bool:
    """Copy the imported modules and packages of the folder ``source`` to ``target``.

    Return False, and create no folder, if there are none. Modules that nothing has imported are not copied.
    """
    paths = _imported_from(source)
    if paths:
        target.mkdir()
    for path in paths:
        if path.is_dir():
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(path, target)
    return bool(paths)


def _imported_from(source: FilePath) -> list[FilePath]:
    """Return the files and the folders of packages directly below ``source`` that hold imported modules."""
    folder, found = source.resolve(), []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if "." in name or name in (_OWN, "__main__") or spec is None:
            continue
        places = [FilePath(place) for place in spec.submodule_search_locations or ()]
        if not places and spec.has_location and spec.origin is not None:
            places = [FilePath(spec.origin)]
        # The files of a mounted ConfigMap are links to another folder.
        found += [place for place in places if place.parent.resolve() == folder]
    return sorted(set(found))
