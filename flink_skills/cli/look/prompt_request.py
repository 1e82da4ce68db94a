"""First request of a turn to a model: its parts with their sizes, and its exact body."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.declaration import read_declaration
from flink_skills.agents.open.generation import check_names, described_models
from flink_skills.agents.plan.compilation import compile_plan
from flink_skills.agents.plan.plan import AgentPlan, ModelPlan
from flink_skills.cli.agent_args import PlainAgent, find_agent, job_scope
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.models import ModelRequest, ModelSetup, UserMessage
from flink_skills.models.well_formed import well_formed, well_formed_message
from flink_skills.models.wires.create import request_body
from flink_skills.options import SkillConfig
from flink_skills.skill.skill_inspection import about_tokens
from flink_skills.tools.base import ToolSpec
from flink_skills.tools.skills.skill_prompts import introduction


@dataclass(frozen=True)
class AgentRequest:
    """Agent, chat model and skills of a request.

    Attributes:
        sources: Skill sources of the job.
        agent: ``module:Class`` or a YAML file. None selects a plain agent.
        chat_model: Name of the model. None selects the first model.
        names: Names of the skills to which the request is limited. None means no limit.
        config: Options of the job.
        setup: Model that replaces the models of the agent.
    """

    sources: Sequence[str]
    agent: str | None
    chat_model: str | None
    names: Sequence[str] | None
    config: SkillConfig
    setup: ModelSetup | None = None

    @contextmanager
    def open(self) -> Iterator[tuple[Agent, AgentPlan, ModelPlan | None, AgentSkillManager]]:
        """Return the agent, its plan, the chat model, and the skills. Tool sets are not opened.

        The model is None if the agent has no models.

        Raises:
            SkillsError: The agent, its skills or its models cannot be used, or a name does not exist.
        """
        scope = job_scope(self.sources, self.config)
        agent = find_agent(self.agent, "")
        scopes = [scope] if scope.sources else []
        plan = compile_plan(agent, job_scopes=scopes, config=self.config, model=self.setup)
        models = {model.name: model for model in plan.models}
        if self.chat_model is not None and self.chat_model not in models:
            raise UnknownNameError("chat model", self.chat_model, models, place=f"agent {plan.agent_id}")
        model = models[self.chat_model] if self.chat_model is not None else next(iter(plan.models), None)
        with AgentSkillManager.from_scopes(plan.scopes, config=self.config, tools=None) as manager:
            valid_names = manager.known_names()
            check_names(plan, model, valid_names)
            for name in self.names or ():
                if name not in valid_names:
                    raise UnknownNameError("skill", name, valid_names, place="--names")
            yield agent, plan, model, manager


@dataclass(frozen=True)
class SentBody:
    """Body of a request, its model, and the names of the tool sets that it omits."""

    data: bytes
    model: str
    toolsets: tuple[str, ...]

    @property
    def parts(self) -> list[tuple[str, int]]:
        """Return the members of the body with their size as compact JSON in bytes, largest first."""
        members: Mapping[str, Any] = json.loads(self.data)
        sizes = [
            (name, len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()))
            for name, value in members.items()
        ]
        return sorted(sizes, key=lambda size: -size[1])


def sent_body(request: AgentRequest, event: str, *, stream: bool) -> SentBody:
    """Return the body of the first request of a turn. Sends no request and requires no API key.

    Raises:
        SkillsError: The request cannot be opened, or this package does not implement the API of its provider.
    """
    with request.open() as (agent, plan, chosen, manager):
        if chosen is None:
            raise ConfigError(f"agent {plan.agent_id} has no chat model. Add --model PROVIDER:NAME.")
        views = {model.name: manager.view(plan.filter_of(model)) for model in plan.models}
        generation = described_models(plan, views)
        if request.names is not None:
            generation = generation.limited_to(request.names)
        model = generation.model(chosen.name)
        first: ModelRequest = model.request(
            well_formed(model.system),
            [well_formed_message(UserMessage(model.prompt.render_user(_parse_event(event))))],
            model.tools.specs(),
            model.default_answer,
        )
        data = request_body(chosen.setup, first, request.config, stream=stream)
    toolsets = read_declaration(agent).all_toolsets
    return SentBody(data, chosen.setup.label, tuple(one.name or type(one).__name__ for one in toolsets))


def _parse_event(text: str) -> Any:
    """Return the event: a JSON object, a JSON array or a string."""
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(
                f"--event is not valid JSON: {error}. A value that starts with {{ or [ must be JSON."
            ) from None
    return text


@dataclass(frozen=True)
class Part:
    """Part of a request. ``fixed`` is True if the part does not depend on the skills."""

    name: str
    text: str = field(repr=False)
    fixed: bool = True

    @property
    def chars(self) -> int:
        """Return the length in characters."""
        return len(self.text)

    @property
    def tokens(self) -> int:
        """Return the approximate number of tokens: one for four characters."""
        return about_tokens(self.text)

    def to_json(self) -> dict[str, Any]:
        return {"part": self.name, "chars": self.chars, "tokens": self.tokens, "fixed": self.fixed}


@dataclass(frozen=True)
class FirstRequest:
    """System prompt and tools of a request to a model that has not loaded a skill.

    Attributes:
        profile: Tool profile, or names of tools.
        menu: Start of the system prompt, up to the end of the list of skills.
        tools: JSON of each tool.
        parts: Parts of the system prompt and the tools.
    """

    profile: str
    system: str
    menu: str
    tools: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def fixed(self) -> Part:
        """Return the parts that do not depend on the skills, as one part."""
        return _join_parts("fixed", [part for part in self.parts if part.fixed])

    @property
    def total(self) -> Part:
        """Return all parts as one part."""
        return _join_parts("total", self.parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "profile": self.profile,
            "system": self.system,
            "tools": [json.loads(tool) for tool in self.tools],
            "parts": [part.to_json() for part in self.parts],
            "fixed": {"chars": self.fixed.chars, "tokens": self.fixed.tokens},
            "total": {"chars": self.total.chars, "tokens": self.total.tokens},
        }


def first_request(view: SkillView, config: SkillConfig) -> FirstRequest:
    """Return the first request of a model with the skills ``view`` in a job with ``config``.

    The request is built as in a turn, but without an event. Skill names in tool schemas form a separate part, because
    they depend on the skills. The function starts no processes and creates no directories.

    >>> request = first_request(manager.view(), SkillConfig())
    >>> [part.name for part in request.parts][:3]
    ['introduction', 'menu entries', 'guidance']
    """
    plan = compile_plan(PlainAgent({"instructions": ""}), config=config)
    (name,) = (model.name for model in plan.models)
    model = described_models(plan, {name: view}).model(name)
    specs = model.tools.specs()
    menu = view.menu(introduction([spec.name for spec in specs])) if view.names else ""
    return FirstRequest(
        profile=model.settings.profile or ",".join(model.settings.tools),
        system=model.system,
        menu=menu,
        tools=tuple(_tool_json(spec) for spec in specs),
        parts=(*_system_parts(model.system, menu), *_tool_parts(specs, sorted(view.names))),
    )


def _system_parts(system: str, menu: str) -> list[Part]:
    """Return the introduction with the tags of the list, the entries of the list, and the guidance."""
    before, opening, remainder = menu.partition("<available_skills>\n")
    entries, closing, note = remainder.partition("</available_skills>")
    return [
        Part("introduction", before + opening + closing),
        Part("menu entries", entries + note, fixed=False),
        Part("guidance", system[len(menu) :]),
    ]


def _tool_parts(specs: Sequence[ToolSpec], names: Sequence[str]) -> list[Part]:
    """Return a part for each tool without the skill names, and a part with the skill names."""
    listed = "".join(_removed_names(spec.parameters, names) for spec in specs)
    bare = [ToolSpec(spec.name, spec.description, _without_names(spec.parameters, names)) for spec in specs]
    return [*(Part(spec.name, _tool_json(spec)) for spec in bare), Part("skill names in tools", listed, fixed=False)]


def _without_names(schema: Any, names: Sequence[str]) -> Any:
    """Return ``schema`` without enumerations of the skill names."""
    if isinstance(schema, Mapping):
        return {key: _without_names(value, names) for key, value in schema.items() if key != "enum" or value != names}
    return [_without_names(value, names) for value in schema] if isinstance(schema, list) else schema


def _removed_names(schema: Any, names: Sequence[str]) -> str:
    """Return the JSON text that :func:`_without_names` removes."""
    if isinstance(schema, Mapping):
        removed = f'"enum":{_compact_json(names)},' if schema.get("enum") == names else ""
        return removed + "".join(_removed_names(value, names) for value in schema.values())
    return "".join(_removed_names(value, names) for value in schema) if isinstance(schema, list) else ""


def _tool_json(spec: ToolSpec) -> str:
    """Return the JSON of a tool: name, description and parameters."""
    return _compact_json({"name": spec.name, "description": spec.description, "parameters": spec.parameters})


def _compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _join_parts(name: str, parts: Sequence[Part]) -> Part:
    return Part(name, "".join(part.text for part in parts))
