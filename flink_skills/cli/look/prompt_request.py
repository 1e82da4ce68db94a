"""Exact body of the first request of a turn, as ``flink-skills prompt --event`` prints it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flink_skills.agents import compile_plan
from flink_skills.agents.declare.declaration import read_declaration
from flink_skills.agents.open.described import described_models
from flink_skills.agents.open.generation import check_names
from flink_skills.cli.agent_args import find_agent, job_scope
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.manager import AgentSkillManager
from flink_skills.models import ModelRequest, ModelSetup, UserMessage
from flink_skills.models.well_formed import well_formed, well_formed_message
from flink_skills.models.wires.bodies import request_body
from flink_skills.options import SkillConfig

__all__ = ["BodyRequest", "SentBody", "sent_body"]


@dataclass(frozen=True)
class BodyRequest:
    """Arguments of ``flink-skills prompt`` for a request body."""

    sources: Sequence[str]
    agent: str | None
    chat_model: str | None
    setup: ModelSetup | None
    names: Sequence[str] | None
    event: str
    stream: bool


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


def sent_body(request: BodyRequest, config: SkillConfig) -> SentBody:
    """Return the body of the first request of a turn. Sends no request and requires no API key.

    Raises:
        SkillsError: The agent, its skills or its model cannot be used, or this package does not implement the API of
            its provider.
    """
    scope = job_scope(request.sources, config)
    agent = find_agent(request.agent, "")
    plan = compile_plan(agent, job_scopes=[scope] if scope.sources else [], config=config, model=request.setup)
    models = {model.name: model for model in plan.models}
    if not models:
        raise ConfigError(f"agent {plan.agent_id} has no chat model. Add --model PROVIDER:NAME.")
    name = request.chat_model or next(iter(models))
    if name not in models:
        raise UnknownNameError("chat model", name, models, place=f"agent {plan.agent_id}")
    # Do not open the tool sets of the agent.
    with AgentSkillManager.from_scopes(plan.scopes, config=config, tools=None) as manager:
        valid_names = [skill.name for skill in manager.get_skills()]
        check_names(plan, models[name], valid_names)
        for selected in request.names or ():
            if selected not in valid_names:
                raise UnknownNameError("skill", selected, valid_names, place="--names")
        views = {model.name: manager.view(plan.filter_of(model)) for model in plan.models}
        generation = described_models(plan, views)
        if request.names is not None:
            generation = generation.limited_to(request.names)
        model = generation.model(name)
        first_request: ModelRequest = model.request(
            well_formed(model.system),
            [well_formed_message(UserMessage(model.prompt.render_user(_parse_event(request.event))))],
            model.tools.specs(),
            model.default_answer,
        )
        data = request_body(models[name].setup, first_request, config, stream=request.stream)
    toolsets = tuple(one.name or type(one).__name__ for one in read_declaration(agent).all_toolsets)
    return SentBody(data, models[name].setup.label, toolsets)


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
