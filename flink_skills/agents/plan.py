"""The agent plan: an agent, compiled and checked, as versioned JSON.

The client compiles it, the job graph carries it, and workers build the agent from it. Nothing in a plan is
looked up again on the cluster except the agent's code, its skills and the values of environment variables.
What only workers may know travels apart from it, see :meth:`AgentPlan.seal`.
"""

from __future__ import annotations

import base64
import importlib
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

from flink_skills.agents.agent import Agent
from flink_skills.agents.declaration import Declaration, agent_id, declared_pool, name_list, read_declaration
from flink_skills.agents.models.registry import ModelSetup, check_setup
from flink_skills.agents.models.setup import SETTINGS, is_setting
from flink_skills.agents.resource import ResourceDescriptor
from flink_skills.agents.sealing import Secrets, public_options, public_scope, seal, unseal
from flink_skills.agents.subagent import agent_tool_spec
from flink_skills.errors import ConfigError, PlanError, SkillsError, UnknownNameError
from flink_skills.manager import SkillScope
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.other_frameworks import SETUP_WORDS
from flink_skills.sources import SourceSpec
from flink_skills.tools.profiles import COMMAND_TOOLS, TOOL_NAMES
from flink_skills.tools.settings import MODEL_KEYS, SkillSettings

__all__ = ["AgentPlan", "ModelPlan", "compile_plan", "load_agent"]

PLAN_VERSION = 3
_CONNECTION_KEYS = ("base_url", "api_key_env")
_SETUP_KEYS = ("connection", "model", "skill_names", "tools", "prompt", "strategy", "price", *_CONNECTION_KEYS)
_DEEPEST = 5


@dataclass(frozen=True)
class ModelPlan:
    """One chat model of an agent: how to reach it and what it may see.

    ``skill_names`` is the model's own filter (None: none; see :meth:`AgentPlan.filter_of`), ``effective_skills`` the
    resulting set where all sources could be read at submit (else None: it is computed, and checked, when the operator
    opens).
    ``skill_settings`` is what the model says itself of the tools for skills (see
    :data:`flink_skills.tools.settings.MODEL_KEYS`), ``tools`` are those of the agent's own tools that it has.
    """

    name: str
    setup: ModelSetup
    skill_names: tuple[str, ...] | None = None
    effective_skills: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    prompt: str | None = None
    skill_settings: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "setup": self.setup.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelPlan:
        def names(key: str) -> tuple[str, ...] | None:
            return None if data[key] is None else tuple(data[key])

        return cls(
            name=data["name"],
            setup=ModelSetup.from_json(data["setup"]),
            skill_names=names("skill_names"),
            effective_skills=names("effective_skills"),
            tools=names("tools"),
            prompt=data["prompt"],
            skill_settings=data["skill_settings"],
        )


@dataclass(frozen=True)
class AgentPlan:
    """A compiled agent.

    ``events`` is how event bytes are written (``"pickle"`` or ``"json"``), ``outputs`` what a turn emits:
    ``"value"`` (what the agent emits) or ``"record"`` (a dict with key, turn, output, skills, tool calls and usage).
    ``rows`` says how records fill the columns of tables, for a job that has tables (see
    :class:`flink_skills.agents.record_rows.RecordRows`): rows leave then, and what fills them also has the event, the
    turn's id and its timestamp.
    ``lock`` is the content of ``skills.lock`` where the client could read that file. ``agents`` are the agents that are
    tools of this one, by tool; they have its options and lock, and come with its code. ``operator`` is the name of the
    job's operator where it is not the agent's own: the job has the agent twice, or gave it another name. ``sandbox``
    says that tools of the agent itself need one, with skills or without. ``skill_filters`` are the ``skill_names`` of
    the agent: its models see the skills that all of these lists name.
    """

    agent_id: str
    agent: Mapping[str, Any] = field(repr=False)
    session: str
    scopes: tuple[SkillScope, ...] = field(repr=False)
    models: tuple[ModelPlan, ...]
    prompts: Mapping[str, Mapping[str, str]]
    tools: tuple[Mapping[str, Any], ...]
    output_schema: Mapping[str, Any] | None
    options: Mapping[str, Any] = field(repr=False)
    events: str = "pickle"
    outputs: str = "value"
    lock: Mapping[str, Any] | None = field(default=None, repr=False)
    rows: Mapping[str, Any] | None = field(default=None, repr=False)
    agents: Mapping[str, AgentPlan] = field(default_factory=dict)
    operator: str = ""
    sandbox: bool = False
    skill_filters: tuple[tuple[str, ...], ...] = ()
    version: int = field(default=PLAN_VERSION)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "agent_id": self.agent_id,
            "agent": dict(self.agent),
            "session": self.session,
            "scopes": [scope.to_json() for scope in self.scopes],
            "models": [model.to_json() for model in self.models],
            "prompts": {name: dict(prompt) for name, prompt in self.prompts.items()},
            "tools": [dict(tool) for tool in self.tools],
            "output_schema": self.output_schema,
            "options": dict(self.options),
            "events": self.events,
            "outputs": self.outputs,
            "lock": self.lock,
            "rows": self.rows,
            "agents": {name: _callee_to_json(callee) for name, callee in self.agents.items()},
            **({"operator": self.operator} if self.operator else {}),
            **({"sandbox": True} if self.sandbox else {}),
            **({"skill_filters": [list(names) for names in self.skill_filters]} if self.skill_filters else {}),
        }

    @property
    def operator_name(self) -> str:
        """The agent's name in its job, which no other has: state, call ids, workspaces and artifacts belong to it."""
        return self.operator or self.agent_id

    @property
    def resources(self) -> tuple[str, ...]:
        """The job-JAR resources that the plan's sources name, each once, as they are named inside a jar."""
        names = [name for plan in self.tree() for scope in plan.scopes for name in scope.resources]
        return tuple(dict.fromkeys(SourceSpec.parse("resource", name).location for name in names))

    def tree(self) -> Iterator[AgentPlan]:
        """This plan, and those of all agents that it can call."""
        yield self
        for callee in self.agents.values():
            yield from callee.tree()

    def filter_of(self, model: ModelPlan | None) -> tuple[str, ...] | None:
        """Return the skills that the agent and ``model`` name, sorted; None if neither names any.

        ``model`` is None for an agent without models. Each ``skill_names`` narrows the others.
        """
        filters = [set(names) for names in self.skill_filters]
        if model is not None and model.skill_names is not None:
            filters.append(set(model.skill_names))
        return tuple(sorted(set.intersection(*filters))) if filters else None

    @property
    def runs_commands(self) -> bool:
        """Whether any model of the agent can come to run a command, or tools of it need a sandbox."""
        if any(callee.runs_commands for callee in self.agents.values()):
            return True
        config = SkillConfig(self.options)
        if not config.get(SkillOptions.SHELL_ENABLED):
            return False
        if self.sandbox:
            return True
        said: list[Mapping[str, Any]] = [model.skill_settings for model in self.models] or [{}]
        settings = [SkillSettings.of(config, of_model) for of_model in said]
        if any(of.runs_code for of in settings) or not self.scopes:
            return any(of.runs_code for of in settings)
        return any(of.bundled or not COMMAND_TOOLS.isdisjoint(of.tools) for of in settings)

    def seal(self) -> tuple[AgentPlan, dict[str, Any]]:
        """This plan without anything secret, and what was taken out of it (JSON-like), for the workers alone:
        URLs with a user or a query, ``skills.source.options``, the agent's own code or description."""
        return seal(self)

    def unseal(self, secrets: Secrets) -> AgentPlan:
        """The plan that :meth:`seal` was called on."""
        return unseal(self, secrets)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AgentPlan:
        """Read a plan. Raises :class:`PlanError` for a version that this release does not know."""
        if data.get("version") != PLAN_VERSION:
            raise PlanError(
                f"the job's agent plan has version {data.get('version')!r}, this flink_skills reads {PLAN_VERSION}: "
                "use the same release on client and TaskManagers"
            )
        fields = dict(data)
        fields["scopes"] = tuple(SkillScope.from_json(scope) for scope in data["scopes"])
        fields["models"] = tuple(ModelPlan.from_json(model) for model in data["models"])
        fields["tools"] = tuple(data["tools"])
        fields["skill_filters"] = tuple(tuple(names) for names in data.get("skill_filters", ()))
        shared = {name: data[name] for name in _SHARED}
        fields["agents"] = {name: cls.from_json({**callee, **shared}) for name, callee in data["agents"].items()}
        return cls(**fields)

    def describe(self) -> dict[str, Any]:
        """The plan for people: agent, session, and per model its effective skills. No code, no settings, no secrets."""
        return {
            "agent": self.agent_id,
            "session": self.session,
            "skill_names": _listed(self.filter_of(None)),
            "sources": [public_scope(scope).described() for scope in self.scopes],
            "models": {
                model.name: {
                    "model": model.setup.label,
                    "skill_names": _listed(model.skill_names),
                    "effective_skills": _listed(model.effective_skills),
                    "skill_tools": self._skill_tools(model),
                    "tools": list(model.tools) if model.tools is not None else [t["name"] for t in self.tools],
                }
                for model in self.models
            },
            "agents": {name: callee.describe() for name, callee in self.agents.items()},
            "options": public_options(self.options),
            "version": self.version,
        }

    def _skill_tools(self, model: ModelPlan) -> str | list[str]:
        config = SkillConfig(self.options)
        settings = SkillSettings.of(config, model.skill_settings)
        if not config.get(SkillOptions.SHELL_ENABLED) and not COMMAND_TOOLS.isdisjoint(settings.tools):
            return [name for name in settings.tools if name not in COMMAND_TOOLS]
        return settings.profile or list(settings.tools)

    def summary(self) -> str:
        """One line per model, as Flink's web UI shows it."""
        lines = [f"agent {self.agent_id}, session per {self.session}"]
        for model in self.models:
            names = model.effective_skills if model.effective_skills is not None else self.filter_of(model)
            if names is not None:
                shown = ", ".join(names) or "none"
            else:
                shown = "all of the job's and agent's sources" if self.scopes else "none"
            tools = self._skill_tools(model)
            shown += (
                f"; tools for skills: {tools if isinstance(tools, str) else ', '.join(tools)}" if self.scopes else ""
            )
            lines.append(f"model {model.name} ({model.setup.provider} {model.setup.model}) skills: {shown}")
        lines += [f"agent tool {name}: ({callee.summary()})" for name, callee in self.agents.items()]
        return "; ".join(lines)

    def with_effective_skills(self, effective: Mapping[str, Sequence[str]]) -> AgentPlan:
        """This plan with the effective skill set of each model filled in."""
        models = tuple(replace(m, effective_skills=tuple(effective[m.name])) for m in self.models)
        return replace(self, models=models)


def _listed(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


# What the agents that are tools have of their caller, so that it travels once.
_SHARED = ("options", "lock", "rows", "events", "outputs", "version")


def _callee_to_json(plan: AgentPlan) -> dict[str, Any]:
    return {name: value for name, value in plan.to_json().items() if name not in _SHARED}


def compile_plan(
    agent: Agent | type[Agent],
    *,
    job_scopes: Sequence[SkillScope] = (),
    config: SkillConfig | None = None,
    events: str = "pickle",
    outputs: str = "value",
    model: ModelSetup | None = None,
    _callers: tuple[str, ...] = (),
) -> AgentPlan:
    """Compile and check ``agent``. ``model`` takes the place of the models that the agent declares, which keep their
    skills, tools and prompts. Raises :class:`SkillsError` naming what is wrong; nothing is contacted."""
    agent = instantiate(agent)
    config = config or SkillConfig()
    declared = read_declaration(agent)
    declared_pool(declared)  # checks it
    agents = _compile_callees(declared, job_scopes, config, model, _callers)
    tools = [tool.make().spec for tool in declared.own_tools.values()]
    tools += [agent_tool_spec(name, of.description, of.agent) for name, of in declared.agents.items()]
    for spec in tools:
        if spec.name in TOOL_NAMES:
            raise PlanError(
                f"agent {declared.agent_id}: a tool is named {spec.name!r} like one of the runtime's; rename it "
                "with @tool(name=…)"
            )
    scopes = (*job_scopes, *declared.skills)
    if model is not None and not declared.setups:
        place = {} if model.base_url is None else {"base_url": model.base_url}
        declared.setups["model"] = ResourceDescriptor(clazz=f"{model.provider}.setup", model=model.model, **place)
    if not declared.setups and type(agent).on_event is Agent.on_event:
        raise PlanError(
            f"agent {declared.agent_id} has no chat model: declare a @chat_model_setup, set "
            "model = 'provider:model', or override on_event"
        )
    for names in declared.skill_filters:
        _check_filter(names, f"agent {declared.agent_id}", bool(scopes))
    models = [_model_plan(declared, name, setup, bool(scopes), config) for name, setup in declared.setups.items()]
    if model is not None:
        models = [replace(of, setup=_replaced(of.setup, model)) for of in models]
    return AgentPlan(
        agent_id=declared.agent_id,
        # One that is a tool comes with the code of its caller.
        agent=_reference(agent, declared) if not _callers else {"kind": "callee", "class": _import_path(type(agent))},
        session=declared.session,
        scopes=scopes,
        models=tuple(models),
        prompts={name: {"system": p.system, "user": p.user} for name, p in declared.prompts.items()},
        tools=tuple({"name": s.name, "description": s.description, "parameters": dict(s.parameters)} for s in tools),
        output_schema=_output_schema(declared),
        options=config.to_json(),
        events=events,
        outputs=outputs,
        agents=agents,
        sandbox=declared.uses_sandbox,
        skill_filters=tuple(declared.skill_filters),
    )


def _compile_callees(
    declared: Declaration,
    job_scopes: Sequence[SkillScope],
    config: SkillConfig,
    model: ModelSetup | None,
    callers: tuple[str, ...],
) -> dict[str, AgentPlan]:
    """The plans of the agents that are tools; raises :class:`PlanError` where they call each other without end."""
    chain = (*callers, declared.agent_id)
    if declared.agents and len(chain) >= _DEEPEST:
        raise PlanError(f"agents call each other {len(chain)} deep: {' -> '.join(chain)}; {_DEEPEST} is the most")
    found = {}
    for name, callee in declared.agents.items():
        callee_id = agent_id(callee.agent)
        if callee_id in chain:
            raise PlanError(
                f"agent {declared.agent_id}: its tool {name!r} leads back to agent {callee_id} "
                f"({' -> '.join((*chain, callee_id))}): an agent cannot call itself"
            )
        found[name] = compile_plan(callee.agent, job_scopes=job_scopes, config=config, model=model, _callers=chain)
    return found


def _replaced(declared: ModelSetup, model: ModelSetup) -> ModelSetup:
    """``model``, with the declared settings where they are for any provider."""
    return replace(
        model, settings={**declared.settings, **model.settings}, strategy=model.strategy or declared.strategy
    )


def instantiate(agent: Agent | type[Agent]) -> Agent:
    """An agent instance of an instance or a class."""
    if isinstance(agent, Agent):
        return agent
    if isinstance(agent, type) and issubclass(agent, Agent):
        try:
            return agent()
        except TypeError as error:
            raise PlanError(
                f"agent class {agent.__qualname__} cannot be made without arguments ({error}): pass an instance"
            ) from error
        except SkillsError:
            raise
        except Exception as error:  # the constructor is the user's
            raise PlanError(
                f"agent class {agent.__qualname__} cannot be made: {type(error).__name__}: {error}"
            ) from error
    raise PlanError(f"apply() takes an Agent class or instance, not {agent!r}")


def _output_schema(declared: Declaration) -> Mapping[str, Any] | None:
    if declared.output_type is None or declared.output_type is str:
        return None
    try:
        return TypeAdapter(declared.output_type).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        raise PlanError(
            f"agent {declared.agent_id}: output_type {declared.output_type!r} has no JSON schema "
            f"({str(error).splitlines()[0]}): use a pydantic model"
        ) from error


def _model_plan(
    declared: Declaration, name: str, setup: ResourceDescriptor, has_sources: bool, config: SkillConfig
) -> ModelPlan:
    place = f"chat model {name!r} of agent {declared.agent_id}"
    arguments = dict(setup.arguments)
    provider, model = _provider(setup.clazz, "setup", place)
    model = arguments.pop("model", None) or model
    connection: Mapping[str, Any] = {}
    connection_name = arguments.pop("connection", None)
    if connection_name is not None:
        if connection_name not in declared.connections:
            raise UnknownNameError("connection", str(connection_name), declared.connections, place=place)
        descriptor = declared.connections[connection_name]
        connection_provider, _ = _provider(descriptor.clazz, "connection", f"connection {connection_name!r}")
        if connection_provider != provider:
            raise PlanError(
                f"{place} is a setup for {provider}, its connection {connection_name!r} is for {connection_provider}"
            )
        connection = descriptor.arguments
        for key in connection:
            if key not in _CONNECTION_KEYS:
                raise UnknownNameError(
                    "argument",
                    key,
                    _CONNECTION_KEYS,
                    place=f"connection {connection_name!r}",
                    advice=SETUP_WORDS.get(key, ""),
                )
    skill_names = name_list(arguments.pop("skill_names", None), f"{place}: skill_names")
    _check_filter(skill_names, place, has_sources)
    tools = name_list(arguments.pop("tools", None), f"{place}: tools")
    for tool in tools or ():
        # What tool sets give is known when they run.
        if tool not in declared.own_tools and tool not in declared.agents and not declared.toolsets:
            raise UnknownNameError("tool", tool, [*declared.own_tools, *declared.agents], place=place)
    said = {key: arguments.pop(key) for key in MODEL_KEYS if key in arguments}
    if declared.run_code is not None:
        said.setdefault("run_code", declared.run_code)
    try:
        SkillSettings.of(config, said)
    except ConfigError as error:
        raise PlanError(f"{place}: {error}") from error
    prompt = arguments.pop("prompt", None)
    if prompt is not None and prompt not in declared.prompts:
        raise UnknownNameError("prompt", str(prompt), declared.prompts, place=place)
    if prompt is None and declared.prompts:
        prompt = "instructions" if "instructions" in declared.prompts else next(iter(declared.prompts))
    for key in arguments:
        if key not in _SETUP_KEYS and not is_setting(key, provider):
            known = [*_SETUP_KEYS, *MODEL_KEYS, *SETTINGS]
            advice = SETUP_WORDS.get(key, "")
            raise UnknownNameError("model setting", key, known, place=place, advice=advice, show_all=not advice)
    checked = ModelSetup(
        provider=provider,
        model=str(model or ""),
        base_url=arguments.pop("base_url", None) or connection.get("base_url"),
        api_key_env=arguments.pop("api_key_env", None) or connection.get("api_key_env"),
        strategy=arguments.pop("strategy", None),
        price=arguments.pop("price", None),
        settings=arguments,
    )
    try:
        check_setup(checked)
    except UnknownNameError:
        raise
    except SkillsError as error:
        raise PlanError(f"{place}: {error}") from error
    return ModelPlan(name=name, setup=checked, skill_names=skill_names, tools=tools, prompt=prompt, skill_settings=said)


def _check_filter(names: Sequence[str] | None, place: str, has_sources: bool) -> None:
    if names and not has_sources:
        raise PlanError(f"{place}: skill_names={list(names)}, but neither the job nor the agent has a skill source")


def _provider(clazz: str, kind: str, place: str) -> tuple[str, str | None]:
    """Provider and model name of a descriptor's class: ``openai.setup`` or ``openai:gpt-…``."""
    if ":" in clazz and kind == "setup":
        provider, _, model = clazz.partition(":")
        return provider, model
    provider, dot, last = clazz.rpartition(".")
    if not dot or last != kind:
        raise PlanError(
            f"{place}: clazz {clazz!r} is not a chat model {kind}; use a …_{kind.upper()} constant of "
            "ResourceName.ChatModel" + (" or 'provider:model'" if kind == "setup" else "")
        )
    return provider, None


def _reference(agent: Agent, declared: Declaration) -> dict[str, Any]:
    """How a worker gets the agent: by import where that gives the same thing, else by value."""
    spec = getattr(agent, "spec", None)
    if isinstance(spec, Mapping):
        return {"kind": "spec", "class": _import_path(type(agent)), "spec": dict(spec)}
    cls = type(agent)
    if not vars(agent) and cls.__module__ != "__main__" and _importable(cls):
        return {"kind": "import", "class": _import_path(cls)}
    try:
        from flink_skills.agents.by_value import dumps, obstacle
    except ImportError as error:
        raise PlanError(
            f"agent {declared.agent_id} is defined in the main script or has attributes of its own, so it travels "
            "by value, and that needs cloudpickle: pip install 'flink-skills[flink]'"
        ) from error
    try:
        data = dumps(agent)
    except Exception as error:  # user objects raise anything when they are pickled
        raise PlanError(
            f"agent {declared.agent_id} cannot be sent to the workers ({type(error).__name__}: {error}; at "
            f"{obstacle(agent) or 'the agent itself'}): keep clients and locks out of its attributes, make them where "
            "they are used, or move the class into a module and ship it (env.add_python_file)"
        ) from error
    return {
        "kind": "pickle",
        "class": _import_path(cls),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "data": base64.b64encode(data).decode("ascii"),
    }


def _import_path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _importable(cls: type) -> bool:
    target: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        target = getattr(target, part, None)
    return target is cls


def load_agent(reference: Mapping[str, Any]) -> Agent:
    """The agent of a plan, in the worker. Raises :class:`PlanError` that says what to ship."""
    path = str(reference["class"])
    try:
        if reference["kind"] == "pickle":
            agent = pickle.loads(base64.b64decode(reference["data"]))  # noqa: S301 - the job's own code
        else:
            cls = import_object(path)
            agent = cls.from_spec(reference["spec"]) if reference["kind"] == "spec" else cls()
    except SkillsError:
        raise
    except Exception as error:  # importing user code raises anything
        wanted = getattr(error, "name", None) if isinstance(error, ImportError) else None
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        mend = (
            f"ship module {wanted!r} with the job (flink run -pyfs, env.add_python_file) or install it in the "
            f"worker's Python ({sys.executable})"
            if wanted
            else f"the agent was sent from Python {reference.get('python', here)}, this worker runs {here} "
            f"({sys.executable})"
        )
        raise PlanError(
            f"the worker cannot load agent {path}: {type(error).__name__}: {error}. Mend: {mend}"
        ) from error
    if not isinstance(agent, Agent):
        raise PlanError(f"{path} is {type(agent).__name__} and not an Agent")
    return agent


def import_object(path: str) -> Any:
    """The object of ``module:qualified.name``."""
    module_name, _, qualname = path.partition(":")
    target: Any = importlib.import_module(module_name)
    for part in qualname.split("."):
        target = getattr(target, part)
    return target
