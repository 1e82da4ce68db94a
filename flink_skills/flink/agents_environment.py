"""The entry point for jobs: ``AgentsExecutionEnvironment``."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.resource import ResourceDescriptor, SharedResources, declared_sources
from flink_skills.agents.plan.compilation import compile_plan, instantiate
from flink_skills.agents.plan.name_checks import (
    NamedAgent,
    check_matches,
    elsewhere_of,
    job_matches,
    named_tree,
)
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.state.keys import check_key_selector
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.flink import submit_checks
from flink_skills.flink.agents_configuration import AgentsConfiguration, FixedAttributes, flink_values, table_values
from flink_skills.flink.stream import AgentInput, ListEvents, ListInput, StreamInput, plan_json
from flink_skills.manager import SkillScope
from flink_skills.manager.scope import SourceItem, check_carried
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillOptions
from flink_skills.prompts import Prompt
from flink_skills.skill import AgentSkill, Limits

if TYPE_CHECKING:
    from pyflink.datastream import DataStream, KeySelector, StreamExecutionEnvironment
    from pyflink.table import StreamTableEnvironment, Table

_log = logging.getLogger(__name__)

# PyFlink imports Apache Beam, and Beam the clients of Google Cloud, whose versions Beam pins. Each entry has the start
# of a message, and the module that issues it.
_IGNORED: tuple[tuple[str, type[Warning], str], ...] = (
    (r"grpcio < \S+ does not support Post-Quantum Cryptography", FutureWarning, r"google\.auth\.transport\.grpc$"),
    (
        r"You are using a (non-supported )?Python version",
        FutureWarning,
        r"google\.api_core\._python_version_support$",
    ),
    # While Python 3.12 compiles it; the compiler knows the file only.
    (r"invalid escape sequence", SyntaxWarning, r".*[/\\]docopt$"),
)


def _ignore_package_warnings() -> None:
    """Ignore warnings that users cannot act on, unless they have a filter for them, such as ``python -W default``."""
    for message, category, module in _IGNORED:
        # Last: any other filter takes precedence.
        warnings.filterwarnings("ignore", message, category, module, append=True)
    if sys.version_info >= (3, 12):
        _ignore_late_stop()


def _ignore_late_stop() -> None:
    """Ignore that PyFlink stops its loopback server when Python exits.

    The stop needs a thread, which Python does not start at that time. The process ends anyway.
    """
    show = sys.unraisablehook

    def show_others(error: sys.UnraisableHookArgs) -> None:
        stopped = getattr(error.object, "func", None)
        is_server = getattr(stopped, "__module__", "") == "grpc._server"
        if not (is_server and isinstance(error.exc_value, RuntimeError)):
            show(error)

    sys.unraisablehook = show_others


# Here, because PyFlink loads these packages when the script creates its first environment.
_ignore_package_warnings()

if find_spec("cloudpickle"):
    # Here, because PyFlink pickles the functions of a stream when the script declares them.
    importlib.import_module("flink_skills.agents.plan.by_value")

Sources = Sequence[SourceItem] | SourceItem


class AgentsExecutionEnvironment(FixedAttributes):
    """Where a job with agents is put together.

    Make one with :meth:`get_execution_environment`. Agents over lists need no Flink at all.

    >>> env = AgentsExecutionEnvironment.get_execution_environment()
    >>> env.from_list(["hello"]).apply(Agent).to_list()  # doctest: +SKIP
    """

    list_outputs: list[Any]
    stream_outputs: list[Any]

    @classmethod
    def advice_of(cls, name: str) -> str:
        return (
            "set options skills.* with get_config().set(key, value), and those of Flink on its "
            "StreamExecutionEnvironment"
        )

    def __init__(
        self, env: StreamExecutionEnvironment | None = None, t_env: StreamTableEnvironment | None = None
    ) -> None:
        submit_checks.check_environment(env)
        if env is None and t_env is not None:
            env = _env_below(t_env)
        self._env = env
        self._t_env = t_env
        self._config = AgentsConfiguration(flink_values(env, t_env))
        if env is not None:
            from flink_skills.flink.graph import use_this_python

            use_this_python(env)
        self._scope = SkillScope(level="job")
        self._shared = SharedResources()
        self._plans: list[AgentPlan] = []
        self._trees: list[list[NamedAgent]] = []
        self._operators: list[tuple[Any, AgentPlan]] = []
        self._names: set[str] = set()
        self._controlled: list[str] = []
        self.list_outputs = []
        self.stream_outputs = []

    @classmethod
    def get_execution_environment(
        cls, env: StreamExecutionEnvironment | None = None, t_env: StreamTableEnvironment | None = None
    ) -> AgentsExecutionEnvironment:
        """Return an environment on top of Flink's.

        Args:
            env: The job's ``StreamExecutionEnvironment``; None with ``t_env``: the one below it.
            t_env: The job's ``StreamTableEnvironment``, for tables.
        """
        return cls(env, t_env)

    def add_skills_from_paths(self, paths: Sources) -> AgentsExecutionEnvironment:
        """Add directories or archives of skills, by absolute path, for all agents of the job.

        A source is a text, or a mapping with pins such as ``{"path": "/opt/skills.zip", "sha256": "…"}``. Raises
        :class:`ConfigError` after ``apply``, as the other methods for sources do.
        """
        return self._add_sources("paths", paths)

    def add_skills_from_resources(self, resources: Sources) -> AgentsExecutionEnvironment:
        """Add folders or zips of skills inside the job's jars, for all agents of the job."""
        return self._add_sources("resources", resources)

    def add_skills_from_urls(self, urls: Sources) -> AgentsExecutionEnvironment:
        """Add archives of skills by URL, for all agents of the job.

        Supported are https, s3, file, protocols of fsspec, and sources of installed packages.

        A source is a text, or a mapping with pins such as ``{"url": "https://…", "sha256": "…"}``. Its user and query
        are kept out of the job's plan and of logs.
        """
        return self._add_sources("urls", urls)

    def _add_sources(self, kind: Literal["paths", "resources", "urls"], sources: Sources) -> AgentsExecutionEnvironment:
        self._config.check_open(f"add_skills_from_{kind}")
        changed: dict[str, Any] = {kind: (*getattr(self._scope, kind), *declared_sources(kind, sources))}
        self._scope = replace(self._scope, **changed)
        return self

    def add_skills(self, skills: Sequence[AgentSkill]) -> AgentsExecutionEnvironment:
        """Add skills that the program makes, for all agents of the job.

        The skills travel with the job. Together with those of agents they have at most 1 MiB as JSON. Raises
        :class:`ConfigError` if they are larger, or if one has a binary file.

        >>> agents_env.add_skills([AgentSkill("greet", "Says hello.", "Say hello.")])
        """
        self._config.check_open("add_skills")
        scope = SkillScope("job", skills=skills)
        check_carried([*self._scope.skills, *scope.skills], "add_skills")
        self._scope = replace(self._scope, skills=(*self._scope.skills, *scope.skills))
        return self

    def add_resource(self, name: str, resource: ResourceDescriptor | Prompt | str) -> AgentsExecutionEnvironment:
        """Add a connection, a chat model setup or a prompt that all agents of the job share.

        A chat model setup names a connection, and a prompt, of its agent or of the job. Every agent has the shared chat
        models after its own; ``model = NAME`` in an agent makes one of them its first. A resource of an agent takes
        precedence over a shared one of its name.

        Args:
            name: The name, which is unique among the resources of its kind.
            resource: A descriptor of a connection or a chat model setup, a prompt, or the text of a prompt. A
                descriptor names the environment variable of a credential and never holds the credential.

        Raises:
            ConfigError: ``name`` is in use, ``resource`` is of another kind, or an agent was applied before.

        >>> agents_env.add_resource(
        ...     "gateway",
        ...     ResourceDescriptor(
        ...         clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION,
        ...         base_url="http://llm-gateway:8000/v1",
        ...         api_key_env="GATEWAY_KEY",
        ...     ),
        ... )
        """
        self._config.check_open("add_resource")
        self._shared = self._shared.with_resource(name, resource)
        return self

    def get_config(self) -> AgentsConfiguration:
        """Return the job's options."""
        self._read_flink_options()
        return self._config

    def check_options(self) -> None:
        """Raise :class:`ConfigError` if options of Flink's configuration were changed after the first ``apply``."""
        if self._env is not None:
            self._config.check_flink(flink_values(self._env, None), table_values(self._t_env))

    def _read_flink_options(self) -> None:
        """Read the options of Flink's configuration again, unless an agent is compiled already."""
        if self._config.is_open and self._env is not None:
            self._config.read_flink(flink_values(self._env, self._t_env))

    def from_datastream(
        self, stream: DataStream, key_selector: Callable[[Any], Any] | KeySelector | str | Sequence[str] | None = None
    ) -> AgentInput:
        """Events of a stream.

        Args:
            stream: Any PyFlink stream.
            key_selector: A callable or ``KeySelector`` from event to key, or the name of a field or a list of names,
                which are read in Java where the stream's type allows. None: the stream is keyed already.
        """
        from flink_skills.flink.keyed_streams import EventKeys

        submit_checks.check_stream(stream)
        keys = EventKeys(self._flink_of(stream), stream, key_selector, "from_datastream")
        return StreamInput(self, keys.flink, keys.events, keys.form, keys.fields)

    def from_table(
        self, table: Table, key_selector: Callable[[Any], Any] | KeySelector | str | Sequence[str] | None = None
    ) -> AgentInput:
        """Return the rows of a table as records, which are dicts whose fields are also attributes.

        A list of column names makes the tuple of their values the key.
        """
        submit_checks.check_table(table)
        names = list(table.get_schema().get_field_names())
        for name in check_key_selector(key_selector, "from_table"):
            if name not in names:
                raise UnknownNameError("key column", name, names, place="the table")
        if key_selector is None:
            raise ConfigError(f"from_table: give a key_selector, a callable or one of {', '.join(names)}")
        return self.from_datastream(self.table_environment().to_changelog_stream(table), key_selector)

    def from_list(
        self,
        events: Iterable[Any],
        key_selector: Callable[[Any], Any] | KeySelector | str | Sequence[str] | None = None,
    ) -> AgentInput:
        """Return a list of events, whose turns run in this process without a cluster.

        Without a key selector all have the key None.

        An event without a usable key becomes an error record, as in a job.

        Args:
            events: The events. Those of an iterator arrive when it returns them, those of a list together.
            key_selector: A callable or ``KeySelector`` from event to key, or the name of a field or a list of names.
        """
        submit_checks.check_events(events)
        check_key_selector(key_selector, "from_list")
        pairs = ListEvents(events, key_selector)
        return ListInput(self, list(pairs) if isinstance(events, Sequence) else pairs)

    def execute(self, job_name: str | None = None) -> Any:
        """Run the job: Flink's ``execute``. Agents over lists run when their outputs are requested.

        A job that is waited for ends with its turns and failures on stderr.

        Raises:
            ConfigError: There is no stream to run, and an agent over a list that has not run.
            JobFailedError: The job failed. The message is that of the root cause, and ``__context__`` is the error of
                Flink with its Java stack.
        """
        waiting = [output.agent_id for output in self.list_outputs if not output.has_run]
        if self._env is None:
            if waiting or not self.list_outputs:
                what = f"agent {waiting[0]} over a list has not run" if waiting else "this environment has no stream"
                raise ConfigError(
                    f"execute() runs the streams of a job, and {what}: call to_list() on the output of "
                    "from_list(…).apply(…), or read a stream with from_datastream or from_table"
                )
            _log.info("execute() has nothing to do: all agents of this job are over lists and have run")
            return None
        if waiting:
            _log.warning("agent %s over a list has not run: execute() runs streams; call to_list()", waiting[0])
        from flink_skills.flink.job_execution import execute

        self.check_options()
        self.check_names()
        result, summary = execute(self._env, self.stream_outputs, job_name)
        if summary is not None:
            sys.stderr.write("".join(f"{line}\n" for line in summary.lines()))
        return result

    def get_execution_plan(self) -> str:
        """JSON: ``agents`` with each chat model's effective skills, and ``flink``, Flink's own plan."""
        return plan_json(self._plans, self._env.get_execution_plan() if self._env is not None else None)

    def compile(
        self,
        agent: Agent | type[Agent],
        *,
        local: bool,
        events: str = "pickle",
        outputs: str = "value",
        model: ModelSetup | None = None,
        fields: Sequence[str] | None = None,
        check_skills: bool = True,
    ) -> AgentPlan:
        """Return the checked plan of ``agent`` in this job. ``check_skills=False`` leaves the sources of skills alone.

        ``fields`` are the names of the fields of all events, if they are known."""
        from flink_skills.flink.jar_resources import client_resources

        self.check_options()
        self._read_flink_options()
        config = self._config.effective()
        scope = SkillScope(
            level="job",
            paths=(*config.get(SkillOptions.FROM_PATHS), *self._scope.paths),
            resources=(*config.get(SkillOptions.FROM_RESOURCES), *self._scope.resources),
            urls=(*config.get(SkillOptions.FROM_URLS), *self._scope.urls),
            skills=self._scope.skills,
        )
        scopes = [] if scope.is_empty else [scope]
        plan = compile_plan(
            agent,
            job_scopes=scopes,
            config=config,
            events=events,
            outputs=outputs,
            model=model,
            shared=self._shared,
            fields=fields,
        )
        if outputs == "record" and self._env is not None:
            # A job by configuration, or a run over lines: their keyed events have no field for a wait.
            submit_checks.check_answer_field(agent, plan.agent_id)
        submit_checks.check_artifacts(plan, local=local)
        carried = [skill for each in plan.tree() for scope in each.scopes for skill in scope.skills]
        check_carried(carried, f"agent {plan.agent_id}")
        if not check_skills:
            submit_checks.check_paths(plan)
            return self._compiled(plan, agent)
        plan = submit_checks.pin_sources(submit_checks.embed_lock(plan, local=local), local=local)
        names = plan.resources if config.get(SkillOptions.VALIDATE_ON_SUBMIT) != "never" else ()
        jars: list[Path] = []
        if names and self._env is not None:
            from flink_skills.flink.bridge import job_jars

            jars = job_jars(self._env)
        with client_resources(jars, names, Limits.from_config(config)) as resource_paths:
            plan = submit_checks.resolve_skills(plan, local=local, resource_paths=resource_paths)
        return self._compiled(plan, agent)

    def _compiled(self, plan: AgentPlan, agent: Agent | type[Agent]) -> AgentPlan:
        self._plans.append(plan)
        self._trees.append(named_tree(plan, instantiate(agent)))
        self._config.close(plan.agent_id)
        return plan

    def check_names(self) -> None:
        """Check the names of tools and skills in options.

        Raises :class:`UnmatchedNamesError` for a name that no agent of the job has, and that nothing can bring.
        """
        check_matches(job_matches(self._trees))

    def with_others(self, plan: AgentPlan) -> AgentPlan:
        """Return ``plan`` with the names in options that other agents of the job have. Workers do not look for them.

        An agent with a control stream also gets the names of all agents that have one.
        """
        others = [tree for tree in self._trees if tree[0].plan.agent_id != plan.agent_id]
        controlled = tuple(self._controlled) if plan.operator_name in self._controlled else ()
        return replace(plan, elsewhere=elsewhere_of(others), controlled=controlled)

    def add_operator(self, flink: StreamExecutionEnvironment, stream: Any, plan: AgentPlan) -> None:
        """Tell the agents that were applied before about the tools of a new one.

        ``stream`` is the Java stream of outputs of the agent.
        """
        self._update_operators(flink)
        self._operators.append((stream, plan))

    def add_control(self, flink: StreamExecutionEnvironment, operator: str) -> None:
        """Tell the agents with a control stream that ``operator`` has one."""
        self._controlled.append(operator)
        self._update_operators(flink)

    def _update_operators(self, flink: StreamExecutionEnvironment) -> None:
        from flink_skills.flink.graph import replace_plan

        for number, (earlier, before) in enumerate(self._operators):
            changed = self.with_others(before)
            if (changed.elsewhere, changed.controlled) != (before.elsewhere, before.controlled):
                replace_plan(flink, earlier, changed)
                self._operators[number] = (earlier, changed)

    def is_local(self, flink: StreamExecutionEnvironment) -> bool:
        """Return True if the job runs in a MiniCluster of this process."""
        from flink_skills.flink.graph import is_local

        return is_local(flink)

    def unique_name(self, name: str) -> str:
        """``name``, with a number when an agent of the job has it already, so that uids stay unique."""
        found, number = name, 1
        while found in self._names:
            number += 1
            found = f"{name}-{number}"
        self._names.add(found)
        if number > 1:
            _log.warning(
                "the job has several agents named %s: this one is named %s, in the order of apply, and its state "
                "belongs to that name. Pass a separate name, apply(…, name=…), to keep its state when another agent "
                "is added or removed",
                name,
                found,
            )
        return found

    def table_environment(self) -> StreamTableEnvironment:
        """Return the job's table environment."""
        if self._t_env is None:
            from pyflink.table import StreamTableEnvironment

            if self._env is None:
                raise ConfigError("tables need get_execution_environment(t_env=…) or env=…")
            self._t_env = StreamTableEnvironment.create(self._env)
        return self._t_env

    def _flink_of(self, stream: DataStream) -> StreamExecutionEnvironment:
        if self._env is None:
            from pyflink.datastream import StreamExecutionEnvironment

            self._env = StreamExecutionEnvironment(stream._j_data_stream.getExecutionEnvironment())
            self._config.read_flink(flink_values(self._env, None))
            from flink_skills.flink.graph import use_this_python

            use_this_python(self._env)
        return self._env


def _env_below(t_env: StreamTableEnvironment) -> StreamExecutionEnvironment:
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.table import StreamTableEnvironment

    if not isinstance(t_env, StreamTableEnvironment):
        raise ConfigError(
            f"t_env is a {type(t_env).__name__}, and agents need the streams below its tables: make it with "
            "StreamTableEnvironment.create(env)"
        )
    return StreamExecutionEnvironment(t_env._j_tenv.execEnv())
