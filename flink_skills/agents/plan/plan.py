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

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.route import Route
from flink_skills.agents.plan.sealing import (
    Secrets,
    hidden_urls,
    public_options,
    public_scope,
    split_agent,
    split_options,
    with_urls,
)
from flink_skills.errors import PlanError, SkillsError, UnknownNameError
from flink_skills.manager import SkillScope
from flink_skills.models.fallback import Fallback
from flink_skills.models.registry import ModelSetup
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.profiles import COMMAND_TOOLS, SkillSettings
from flink_skills.version import __version__, mismatch

# Keyed state is found by the uid: never another one.
_PREFIX = "agent-"


def operator_uid(name: str) -> str:
    """The uid of the operator of an agent that has this name in its job.

    >>> operator_uid("triage")
    'agent-triage'
    """
    return f"{_PREFIX}{name}"


def operator_of(uid: str) -> str | None:
    """Return the agent name for a uid. Return None for another operator.

    >>> operator_of("agent-triage"), operator_of("orders")
    ('triage', None)
    """
    return uid.removeprefix(_PREFIX) if uid.startswith(_PREFIX) else None


PLAN_VERSION = 3


@dataclass(frozen=True)
class ModelPlan:
    """One chat model of an agent: how to reach it and what it may see.

    ``skill_names`` is the model's own filter (None: none; see :meth:`AgentPlan.filter_of`), ``effective_skills`` the
    resulting set where all sources could be read at submit (else None: it is computed, and checked, when the operator
    opens).
    ``skill_settings`` is what the model says itself of the tools for skills (see
    :data:`flink_skills.tools.profiles.MODEL_KEYS`), ``tools`` are those of the agent's own tools that it has.
    ``fallback`` are the models that answer for it, in their order.
    """

    name: str
    setup: ModelSetup
    skill_names: tuple[str, ...] | None = None
    effective_skills: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    prompt: str | None = None
    skill_settings: Mapping[str, Any] = field(default_factory=dict)
    fallback: tuple[Fallback, ...] = ()

    def to_json(self) -> dict[str, Any]:
        fallback = [each.to_json() for each in self.fallback]
        return {**asdict(self), "setup": self.setup.to_json(), "fallback": fallback}

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
            fallback=tuple(map(Fallback.from_json, data.get("fallback", ()))),
        )


@dataclass(frozen=True)
class AgentPlan:
    """A compiled agent.

    ``events`` is how event bytes are written (``"pickle"`` or ``"json"``), ``outputs`` what a turn emits:
    ``"value"`` (what the agent emits) or ``"record"`` (a dict with key, turn, output, skills, tool calls and usage).
    ``rows`` says how records fill the columns of tables, for a job that has tables (see
    :class:`flink_skills.agents.rows.table_rows.RecordRows`): rows leave then, and what fills them also has the event,
    the turn's id and its timestamp.
    ``lock`` is the content of ``skills.lock`` where the client could read that file. ``agents`` are the agents that are
    tools of this one, by tool; they have its options and lock, and come with its code. ``operator`` is the name of the
    job's operator where it is not the agent's own: the job has the agent twice, or gave it another name. ``sandbox``
    says that tools of the agent itself need one, with skills or without. ``skill_filters`` are the ``skill_names`` of
    the agent: its models see the skills that all of these lists name. ``route`` chooses the model of an event.
    ``approve`` are the names and patterns of tools whose calls need an approval, without those of options.
    ``elsewhere`` are the names in options that another agent of the job has (true) or may get (false), see
    :func:`flink_skills.agents.plan.name_checks.elsewhere_of`. ``plugin_servers`` are the names of the MCP servers
    of plugins, if the client read all sources and an option names some. They do not travel with the plan.
    ``build`` is the version of the package that compiled the plan.
    ``controlled`` are the names of the job's agents with a control stream, if this agent has one.
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
    route: Route | None = None
    approve: tuple[str, ...] = ()
    elsewhere: Mapping[str, bool] = field(default_factory=dict)
    controlled: tuple[str, ...] = ()
    plugin_servers: frozenset[str] | None = field(default=None, compare=False)
    version: int = field(default=PLAN_VERSION)
    build: str = field(default=__version__, compare=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "build": self.build,
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
            **({"route": self.route.to_json()} if self.route is not None else {}),
            **({"approve": list(self.approve)} if self.approve else {}),
            **({"elsewhere": dict(self.elsewhere)} if self.elsewhere else {}),
            **({"controlled": list(self.controlled)} if self.controlled else {}),
        }

    @property
    def operator_name(self) -> str:
        """The agent's name in its job, which no other has: state, call ids, workspaces and artifacts belong to it."""
        return self.operator or self.agent_id

    @property
    def resources(self) -> tuple[str, ...]:
        """The job-JAR resources that the plan's sources name, each once, as they are named inside a jar."""
        specs = (spec for plan in self.tree() for scope in plan.scopes for spec in scope.resources)
        return tuple(dict.fromkeys(spec.location for spec in specs))

    def tree(self) -> Iterator[AgentPlan]:
        """This plan, and those of all agents that it can call."""
        yield self
        for callee in self.agents.values():
            yield from callee.tree()

    def filter_of(self, model: ModelPlan | None) -> tuple[str, ...] | None:
        """Return the skills that the agent and ``model`` name, sorted. None if neither names any.

        ``model`` is None for an agent without models. Each ``skill_names`` narrows the others.
        """
        filters = [set(names) for names in self.skill_filters]
        if model is not None and model.skill_names is not None:
            filters.append(set(model.skill_names))
        if not filters:
            return None
        found, *others = filters
        for names in others:
            # "ops:deploy" is one of the skills that "deploy" names.
            both = {name for name in found if name in names or name.partition(":")[2] in names}
            found = both | {name for name in names if name.partition(":")[2] in found}
        return tuple(sorted(found))

    @property
    def runs_commands(self) -> bool:
        """Whether any model of the agent can come to run a command, or tools of it need a sandbox."""
        if any(callee.runs_commands for callee in self.agents.values()):
            return True
        config = SkillConfig(self.options)
        if not config.get(SkillOptions.SHELL_ENABLED):
            return False
        if self.sandbox or (self.scopes and config.get(SkillOptions.PLUGINS_SERVERS)):
            return True
        return any(
            of.runs_code or (sees and of.bundled) or not COMMAND_TOOLS.isdisjoint(of.tools_for(sees_skills=sees))
            for of, sees in self.settings(config)
        )

    def bundled_off(self, config: SkillConfig) -> str:
        """Return the reason why no model of the agent is offered the tools that skills bring.

        Return "" if a model is offered them.
        """
        reasons = [of.bundled_off for of, _ in self.settings(config)]
        return "" if "" in reasons else reasons[0]

    def settings(self, config: SkillConfig) -> list[tuple[SkillSettings, bool]]:
        """Return the settings of each model, and whether it can see a skill. An agent without models has one entry."""
        return [
            (
                SkillSettings.of(config, model.skill_settings if model is not None else None),
                bool(self.scopes) and self.filter_of(model) != (),
            )
            for model in self.models or (None,)
        ]

    def seal(self) -> tuple[AgentPlan, dict[str, Any]]:
        """This plan without anything secret, and what was taken out of it (JSON-like), for the workers alone:
        URLs with a user or a query, ``skills.source.options``, the agent's own code or description."""
        options, hidden = split_options(self.options)
        agent, code = split_agent(self.agent)
        callees = {name: callee.seal() for name, callee in self.agents.items()}
        sealed = replace(
            self,
            scopes=tuple(map(public_scope, self.scopes)),
            options=options,
            agent=agent,
            agents={name: callee for name, (callee, _) in callees.items()},
        )
        taken = {
            "urls": hidden_urls(self.scopes),
            "options": hidden,
            "agent": code,
            "agents": {name: secrets for name, (_, secrets) in callees.items() if secrets},
        }
        return sealed, {name: part for name, part in taken.items() if part}

    def unseal(self, secrets: Secrets) -> AgentPlan:
        """The plan that :meth:`seal` was called on."""
        callees = secrets.get("agents", {})
        return replace(
            self,
            scopes=with_urls(self.scopes, secrets.get("urls", {})),
            options={**self.options, **secrets.get("options", {})},
            agent={**self.agent, **secrets.get("agent", {})},
            agents={name: callee.unseal(callees.get(name, {})) for name, callee in self.agents.items()},
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AgentPlan:
        """Read a plan. Raises :class:`PlanError` for a plan of another release, see :mod:`flink_skills.version`."""
        build, version = data.get("build"), data.get("version")
        if mismatch(build) or version != PLAN_VERSION:
            raise PlanError(
                f"the job was submitted by flink_skills {build or 'of an unknown version'} with plan format {version}, "
                f"and this TaskManager has flink_skills {__version__} with plan format {PLAN_VERSION}: install the "
                "same version for the client and on the TaskManagers"
            )
        fields = dict(data)
        fields["scopes"] = tuple(SkillScope.from_json(scope) for scope in data["scopes"])
        fields["models"] = tuple(ModelPlan.from_json(model) for model in data["models"])
        fields["tools"] = tuple(data["tools"])
        fields["skill_filters"] = tuple(tuple(names) for names in data.get("skill_filters", ()))
        fields["approve"] = tuple(data.get("approve", ()))
        fields["route"] = Route.parse(data["route"]) if "route" in data else None
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
                    **({"fallback": [each.name for each in model.fallback]} if model.fallback else {}),
                    "skill_names": _listed(model.skill_names),
                    "effective_skills": _listed(model.effective_skills),
                    "skill_tools": self._skill_tools(model),
                    "tools": list(model.tools) if model.tools is not None else [t["name"] for t in self.tools],
                }
                for model in self.models
            },
            **({"route": self.route.to_json()} if self.route is not None else {}),
            **({"approve": list(self.approve)} if self.approve else {}),
            "agents": {name: callee.describe() for name, callee in self.agents.items()},
            "options": public_options(self.options),
            "version": self.version,
            "build": self.build,
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
            if model.fallback:
                shown += f"; fallback: {', '.join(each.name for each in model.fallback)}"
            lines.append(f"model {model.name} ({model.setup.provider} {model.setup.model}) skills: {shown}")
        if self.route is not None:
            lines.append(f"model {self.route.described()}")
        if self.approve:
            lines.append(f"approval: {', '.join(self.approve)}")
        lines += [f"agent tool {name}: ({callee.summary()})" for name, callee in self.agents.items()]
        return "; ".join(lines)

    def with_effective_skills(self, effective: Mapping[str, Sequence[str]]) -> AgentPlan:
        """This plan with the effective skill set of each model filled in."""
        models = tuple(replace(m, effective_skills=tuple(effective[m.name])) for m in self.models)
        return replace(self, models=models)


def _listed(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


# What the agents that are tools have of their caller, so that it travels once.
_SHARED = ("options", "lock", "rows", "events", "outputs", "version", "build")


def _callee_to_json(plan: AgentPlan) -> dict[str, Any]:
    return {name: value for name, value in plan.to_json().items() if name not in _SHARED}


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
        fix = (
            f"ship module {wanted!r} with the job (flink run -pyfs, env.add_python_file) or install it in the "
            f"worker's Python ({sys.executable})"
            if wanted
            else f"the agent was sent from Python {reference.get('python', here)}, this worker runs {here} "
            f"({sys.executable})"
        )
        raise PlanError(f"the worker cannot load agent {path}: {type(error).__name__}: {error}. Fix: {fix}") from error
    if not isinstance(agent, Agent):
        raise PlanError(f"expected an Agent at {path}, got {type(agent).__name__}")
    return agent


def unknown_in_module(module_name: str, qualname: str) -> UnknownNameError | None:
    """Return the error for a name that an imported module does not have. None: the module has it."""
    target: Any = sys.modules[module_name]
    place = f"module {module_name}"
    for part in qualname.split("."):
        if not hasattr(target, part):
            return UnknownNameError("name", part, (name for name in dir(target) if name[:1] != "_"), place=place)
        target = getattr(target, part)
        place = f"{module_name}:{part}"
    return None


def import_object(path: str) -> Any:
    """The object of ``module:qualified.name``."""
    module_name, _, qualname = path.partition(":")
    target: Any = importlib.import_module(module_name)
    for part in qualname.split("."):
        target = getattr(target, part)
    return target
