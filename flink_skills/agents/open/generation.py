"""The models of an open agent with the skills and tools of each, as of one moment.

A generation never changes. A refresh of the skills creates a new one. A turn keeps the one that it began with.
"""

from __future__ import annotations

import logging
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from flink_skills.agents.declare.answers import AnswerType
from flink_skills.agents.plan.plan import AgentPlan, ModelPlan
from flink_skills.artifacts import ArtifactStore
from flink_skills.errors import ConfigError, TurnError, UnknownNameError
from flink_skills.execution import IsolationReport, WorkspaceManager
from flink_skills.execution.backends.local_backend import HygieneBackend
from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.manager.view import unknown_skill
from flink_skills.models.base import ChatModel
from flink_skills.models.fallback import FallbackChain
from flink_skills.models.media import accepted_kinds
from flink_skills.models.messages import Message, ModelRequest
from flink_skills.models.permits import Permits
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.prompts import Prompt
from flink_skills.tools import ShellRunner, SkillState, ToolSet
from flink_skills.tools.base import Tool, ToolContext, ToolSpec
from flink_skills.tools.calling import CallGuard
from flink_skills.tools.dynamic.active import active_tools, not_active, switched_off
from flink_skills.tools.dynamic.tool_pool import PoolTools
from flink_skills.tools.profiles import SkillSettings, brings_tools
from flink_skills.tools.skills.skill_face import ToolServices, profile_tools
from flink_skills.tools.skills.skill_prompts import guidance, introduction
from flink_skills.tools.tool_names import hint, matches

_log = logging.getLogger("flink_skills.runtime")

# Views of skills that agents chose for events (see Agent.visible_skills): as many as are kept ready.
_LIMITED = 64
# Names from events can be anything.
_MAX_UNKNOWN = 1000

_CODE = (
    "Code in your answer runs in your working folder if it is fenced as ```python or ```bash. You read its output in a "
    "```tool_output block and continue. An answer without such a code block is your final one."
)


@dataclass(frozen=True)
class ModelRuntime:
    """One chat model of an open agent, with the skills and tools that it may use.

    ``tools`` are exactly the tools that this model may call before it has loaded a skill. ``view`` are the skills that
    it may load. Both enforce filters, regardless of prompts and of what the model writes. ``chosen`` are the names and
    patterns of the tools that its setup names. None: all tools of the agent. ``code`` runs the code of its answers if
    the job enables that. It is not offered as a tool. ``system`` is the fixed part of the system text: instructions,
    and ``guide``, which has the menu of skills and guidance for the tools. ``chain`` is the model with its fallbacks.
    None: it has none. ``on_incomplete`` is what to do with the text of an answer that is not complete.
    """

    name: str
    agent_id: str
    setup: ModelSetup | None
    chat_model: ChatModel
    permits: Permits | None
    services: ToolServices
    tools: ToolSet
    chosen: tuple[str, ...] | None
    code: ToolSet | None
    prompt: Prompt
    system: str
    guide: str
    provider_settings: Mapping[str, Any]
    default_answer: AnswerType
    timeout: float
    on_incomplete: str
    chain: FallbackChain | None = None

    @property
    def view(self) -> SkillView:
        return self.services.view

    @property
    def settings(self) -> SkillSettings:
        return self.services.settings

    def answer_type(self, output_type: Any) -> AnswerType:
        """Return the answer type for a chat. ``...`` selects the agent's own."""
        return self.default_answer if output_type is ... else AnswerType.of(output_type)

    def system_with(self, instructions: str | None) -> str:
        """Return the fixed part of the system text. None: the instructions are those of the model's prompt."""
        return self.system if instructions is None else _system(instructions, self.guide)

    def request(
        self,
        system: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        answer_type: AnswerType,
        *,
        affinity: str = "",
    ) -> ModelRequest:
        return ModelRequest(
            system=system,
            messages=messages,
            tools=tools,
            output_schema=answer_type.schema,
            settings=self.provider_settings,
            timeout=self.timeout,
            affinity=affinity,
        )

    @property
    def is_dynamic(self) -> bool:
        """True if loading a skill can change the tools, or the answer to a call of one that does not exist."""
        services = self.services
        has_more = services.pool is not None or services.bundled is not None or services.toolsets is not None
        return has_more or self._hides_tools

    @cached_property
    def _hides_tools(self) -> bool:
        """True if a skill of the model brings tools that the model is not offered."""
        return bool(self.services.settings.bundled_off) and _bring_tools(self.view)

    def always(self, given: Mapping[str, Tool]) -> ToolSet:
        """Return the tools of the model with those that the tool sets of its agent return in a turn."""
        if not given:
            return self.tools
        clear = {name: tool for name, tool in given.items() if name not in self.tools and self.has(name)}
        if self.services.toolsets is not None:
            self.services.toolsets.note(
                f"tool {name!r} of a tool set is omitted: agent {self.agent_id} already has a tool of this name"
                for name in given
                if name in self.tools
            )
        speakers = given.speakers if isinstance(given, PoolTools) else None
        return self.tools.extended(clear.values(), lambda name: None, speakers)

    def has(self, name: str) -> bool:
        """Return True if the model's setup admits a tool of this name. A setup that names no tools admits all."""
        return self.chosen is None or matches(name, self.chosen)

    def tools_with(self, tools: ToolSet, state: SkillState, pool: Mapping[str, Tool]) -> ToolSet:
        """Return ``tools`` with those that the loaded skills of ``state`` bring or activate."""
        off = self.services.settings.bundled_off
        if self.services.pool is None and self.services.bundled is None:
            if not self._hides_tools:
                return tools
            return tools.extended((), lambda name: switched_off(name, state, self.view, off))
        active = active_tools(state, self.view, pool, self.services.bundled, tools.names)
        if self.services.pool is not None:
            self.services.pool.note(active.notes)
        return tools.extended(
            active.tools,
            lambda name: not_active(name, state, self.view, pool, tools.names, off=off),
            pool.speakers if isinstance(pool, PoolTools) else None,
        )


@dataclass(frozen=True)
class GenerationParts:
    """The parts that all generations of an open agent share. ``services`` are those of a model without skills."""

    plan: AgentPlan
    chat_models: Mapping[str, ChatModel]
    permits: Mapping[str, Permits]
    own_tools: Mapping[str, Tool]
    services: ToolServices
    guard: CallGuard
    default_answer: AnswerType
    timeout: float
    chains: Mapping[str, FallbackChain] = field(default_factory=dict)
    #: Names from ``visible_skills`` that no skill has, as far as they were logged.
    unknown: set[str] = field(default_factory=set)


class Generation:
    """Models by name, as they are while the skills do not change. ``number`` is the manager's."""

    def __init__(
        self, parts: GenerationParts, number: int, views: Mapping[str, SkillView], skills: Iterable[str] = ()
    ) -> None:
        """``views`` are the skills of each model, those of an agent without models under the empty name. ``skills`` are
        the names of all skills."""
        self._parts = parts
        self._views = views
        self._skills = frozenset(skills)
        self._agent_id = parts.plan.agent_id
        self._limited: OrderedDict[frozenset[str], Generation] = OrderedDict()
        self.number = number
        self.models: Mapping[str, ModelRuntime] = {
            model.name: _open(parts, views[model.name], model) for model in parts.plan.models
        }
        self._without_model = None if self.models else _open(parts, views[""], None)

    @classmethod
    def of(cls, parts: GenerationParts, manager: AgentSkillManager) -> Generation:
        """Return the models with the skills that ``manager`` has now.

        Raises :class:`UnknownNameError` for a name in ``skill_names`` that no source has (any more).
        """
        models: list[ModelPlan | None] = [*parts.plan.models] or [None]
        views = {model.name if model else "": effective_view(parts.plan, manager, model) for model in models}
        return cls(parts, manager.generation, views, manager.known_names())

    def limited_to(self, names: Iterable[str]) -> Generation:
        """Return the models with no other skills than ``names``, which ``visible_skills`` returned.

        A name that no skill has is a warning in the log. Raises :class:`TurnError` for anything else than names.
        """
        listed = None if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
        if listed is None or not all(isinstance(name, str) for name in listed):
            raise TurnError(f"visible_skills returned {names!r:.200}: return a list of names, or None for all skills")
        visible = frozenset(listed)
        self._note_unknown(visible - self._skills)
        found = self._limited.get(visible)
        if found is None:
            views = {model: view.only(visible) for model, view in self._views.items()}
            found = self._limited[visible] = Generation(self._parts, self.number, views, self._skills)
            if len(self._limited) > _LIMITED:
                self._limited.popitem(last=False)
        self._limited.move_to_end(visible)
        return found

    def _note_unknown(self, names: Iterable[str]) -> None:
        noted = self._parts.unknown
        for name in sorted(names):
            if name not in noted and len(noted) < _MAX_UNKNOWN:
                noted.add(name)
                _log.warning(
                    "agent %s: visible_skills returned %.100r, which matches no skill of the agent. %s",
                    self._agent_id,
                    name,
                    hint(name, self._skills, "skill"),
                )

    def model(self, name: str | None) -> ModelRuntime:
        """Return the open chat model ``name``, or the first one of the agent."""
        if name is None:
            for model in self.models.values():
                return model
            raise TurnError(
                f"agent {self._agent_id} has no chat model, and ctx.chat needs one: declare a @chat_model_setup"
            )
        if name not in self.models:
            raise UnknownNameError("chat model", name, self.models, place=f"agent {self._agent_id}")
        return self.models[name]

    def tool_scope(self, name: str | None) -> ModelRuntime:
        """Return the model whose tools ``ctx.call_tool`` may call. Without models the agent may call all its tools."""
        if name is None and self._without_model is not None:
            return self._without_model
        return self.model(name)


def effective_names(plan: AgentPlan, manager: AgentSkillManager) -> list[str]:
    """Return the names of the skills that any model of the agent may load, sorted.

    Raises the errors of :func:`effective_view`.
    """
    models: list[ModelPlan | None] = [*plan.models] or [None]
    return sorted({name for model in models for name in effective_view(plan, manager, model).names})


def effective_view(plan: AgentPlan, manager: AgentSkillManager, model: ModelPlan | None) -> SkillView:
    """Return the skills that ``model`` may load. None: an agent without models.

    Raises :class:`UnknownNameError`, which names the agent and the model, for a name in ``skill_names`` that no source
    has.
    """
    check_names(plan, model, manager.known_names())
    return manager.view(plan.filter_of(model))


def check_names(plan: AgentPlan, model: ModelPlan | None, known: Iterable[str]) -> None:
    """Raise :class:`UnknownNameError` for a name in the ``skill_names`` of the agent or ``model`` that is not known."""
    known = set(known)
    declared = [(f"agent {plan.agent_id}", names) for names in plan.skill_filters]
    if model is not None:
        declared.append((f"chat model {model.name!r} of agent {plan.agent_id}", model.skill_names or ()))
    for owner, names in declared:
        for name in names:
            if name not in known:
                raise unknown_skill(name, known, place=f"skill_names of {owner}")


def _open(parts: GenerationParts, view: SkillView, plan: ModelPlan | None) -> ModelRuntime:
    settings = SkillSettings.of(parts.services.config, plan.skill_settings if plan is not None else None)
    chosen = plan.tools if plan is not None else None
    own = [name for name in parts.own_tools if chosen is None or matches(name, chosen)]
    chat_model = parts.chat_models[plan.name] if plan is not None else _NoModel()
    services = replace(
        parts.services,
        view=view,
        accepts=chat_model.accepts,
        own_tools=frozenset(own),
        settings=settings,
        bundled=parts.services.bundled if settings.bundled and _bring_tools(view) else None,
    )
    # Without skills there is nothing to run commands of. An agent without a model calls by name what it needs.
    sees_skills = bool(view.names) or (plan is None and bool(parts.plan.scopes))
    faces = profile_tools(settings.tools_for(sees_skills=sees_skills), services)
    guide = _guide(view, settings, [tool.spec.name for tool in faces])
    prompt = Prompt(**parts.plan.prompts[plan.prompt]) if plan is not None and plan.prompt else Prompt()
    return ModelRuntime(
        name=plan.name if plan is not None else "",
        agent_id=parts.plan.agent_id,
        setup=plan.setup if plan is not None else None,
        chat_model=chat_model,
        permits=parts.permits.get(plan.name) if plan is not None else None,
        services=services,
        tools=ToolSet([*faces, *(parts.own_tools[tool] for tool in own)], parts.guard),
        chosen=chosen,
        code=_code_tools(parts) if settings.runs_code else None,
        prompt=prompt,
        system=_system(prompt.render_system(), guide),
        guide=guide,
        provider_settings=plan.setup.settings if plan is not None else {},
        default_answer=parts.default_answer,
        timeout=parts.timeout,
        on_incomplete=(plan.setup.on_incomplete if plan is not None else None)
        or services.config.get(SkillOptions.MODEL_ON_INCOMPLETE),
        chain=parts.chains.get(plan.name) if plan is not None else None,
    )


def _bring_tools(view: SkillView) -> bool:
    return any(skill is not None and brings_tools(skill) for skill in map(view.get, view.names))


def _code_tools(parts: GenerationParts) -> ToolSet:
    # Imported here: few jobs run code, and the schema of its arguments is built with its class.
    from flink_skills.tools.skills.shell_tool import RunCode

    return ToolSet([RunCode(parts.services.config)], parts.guard)


def _guide(view: SkillView, settings: SkillSettings, tools: Sequence[str]) -> str:
    """Return what follows the instructions in the system text: the menu of skills, and guidance for the tools."""
    parts = [_CODE] if settings.runs_code else []
    if view.names:
        parts += [view.menu(introduction(tools)), guidance(settings, tools)]
    return "\n\n".join(part for part in parts if part)


def _system(instructions: str, guide: str) -> str:
    return "\n\n".join(part for part in (instructions.strip(), guide) if part)


class _NoModel(ChatModel):
    """Stands for the model of an agent that has none."""

    name = "none"

    async def request(self, request: ModelRequest) -> Any:
        raise TurnError("this agent has no chat model")


def described_models(plan: AgentPlan, views: Mapping[str, SkillView]) -> Generation:
    """Return the models in ``plan`` with their system prompts and tools. ``views`` has the skills for each model.

    >>> described_models(plan, {"model": manager.view()}).model("model").system
    """
    config = SkillConfig(plan.options)
    parts = GenerationParts(
        plan=plan,
        permits={},
        guard=CallGuard(config),
        chat_models={model.name: _Silent(accepted_kinds(model.setup)) for model in plan.models},
        own_tools={str(spec["name"]): _Described(spec) for spec in plan.tools},
        services=ToolServices(SkillView([]), config, shell=_describing_shell(config), artifacts=_store(config)),
        default_answer=AnswerType(schema=plan.output_schema),
        timeout=config.get(SkillOptions.MODEL_TIMEOUT),
    )
    return Generation(parts, 1, views, {name for view in views.values() for name in view.names})


class _Silent(ChatModel):
    """Is never asked anything."""

    name = "none"

    def __init__(self, accepts: frozenset[str]) -> None:
        # Tools describe which media they return to the model.
        self.accepts = accepts

    async def request(self, request: ModelRequest) -> Any:
        raise NotImplementedError("a described model sends no request: open the plan to run turns")


class _Described(Tool):
    """A tool of the agent's own, as its plan describes it."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec = ToolSpec(spec["name"], spec["description"], spec["parameters"])

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        raise NotImplementedError("a described tool cannot be called: open the plan to run turns")


def _store(config: SkillConfig) -> ArtifactStore | None:
    """Return the store of artifacts without contacting it. None also if only the cluster can open it."""
    try:
        return ArtifactStore.open(config)
    except ConfigError:
        return None  # where this is a mistake, compiling the job has reported it


def _describing_shell(config: SkillConfig) -> ShellRunner | None:
    """A shell that is never started: tools take their descriptions from its policy and its limits."""
    if not config.get(SkillOptions.SHELL_ENABLED):
        return None
    backend = HygieneBackend()
    nowhere = Path(tempfile.gettempdir()) / "flink-skills-prompt"
    return ShellRunner(backend, WorkspaceManager(nowhere), config, report=IsolationReport(backend.level, backend.name))
