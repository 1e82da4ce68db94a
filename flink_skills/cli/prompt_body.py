"""The first request of a turn, to the byte, as ``flink-skills prompt --event`` prints it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flink_skills.agents import ModelRequest, UserMessage, compile_plan
from flink_skills.agents.declaration import read_declaration
from flink_skills.agents.described import described_models
from flink_skills.agents.generation import check_names
from flink_skills.agents.models import ModelSetup
from flink_skills.agents.models.wires.bodies import request_body
from flink_skills.agents.well_formed import well_formed, well_formed_message
from flink_skills.cli.agents import find_agent, job_scope
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.manager import AgentSkillManager
from flink_skills.options import SkillConfig

__all__ = ["BodyRequest", "SentBody", "sent_body"]


@dataclass(frozen=True)
class BodyRequest:
    """The options of the command line."""

    sources: Sequence[str]
    agent: str | None
    chat_model: str | None
    setup: ModelSetup | None
    names: Sequence[str] | None
    event: str
    stream: bool


@dataclass(frozen=True)
class SentBody:
    """The body of a request, its model, and the tool sets that are not in it."""

    data: bytes
    model: str
    toolsets: tuple[str, ...]

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The members of the body with their bytes as compact JSON, the largest first."""
        members: Mapping[str, Any] = json.loads(self.data)
        sizes = [
            (name, len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()))
            for name, value in members.items()
        ]
        return sorted(sizes, key=lambda size: -size[1])


def sent_body(request: BodyRequest, config: SkillConfig) -> SentBody:
    """Return the body of the first request of a turn. Nothing is sent, and no key is needed.

    Raises:
        SkillsError: The agent, its skills or its model cannot be used, or its provider has no wire of this package.
    """
    scope = job_scope(request.sources, config)
    agent = find_agent(request.agent, "")
    plan = compile_plan(agent, job_scopes=[scope] if scope.sources else [], config=config, model=request.setup)
    models = {model.name: model for model in plan.models}
    if not models:
        raise ConfigError(f"agent {plan.agent_id} has no chat model: add --model PROVIDER:NAME")
    name = request.chat_model or next(iter(models))
    if name not in models:
        raise UnknownNameError("chat model", name, models, place=f"agent {plan.agent_id}")
    # Tool sets of the agent are not open here.
    with AgentSkillManager.from_scopes(plan.scopes, config=config, tools=None) as manager:
        known = [skill.name for skill in manager.get_skills()]
        check_names(plan, models[name], known)
        for chosen in request.names or ():
            if chosen not in known:
                raise UnknownNameError("skill", chosen, known, place="--names")
        views = {model.name: manager.view(plan.filter_of(model)) for model in plan.models}
        generation = described_models(plan, views)
        if request.names is not None:
            generation = generation.limited_to(request.names)
        model = generation.model(name)
        asked: ModelRequest = model.request(
            well_formed(model.system),
            [well_formed_message(UserMessage(model.prompt.render_user(_event(request.event))))],
            model.tools.specs(),
            model.default_answer,
        )
        data = request_body(models[name].setup, asked, config, stream=request.stream)
    toolsets = tuple(one.name or type(one).__name__ for one in read_declaration(agent).all_toolsets)
    return SentBody(data, models[name].setup.label, toolsets)


def _event(text: str) -> Any:
    """Return the event: a JSON object or array, else a string."""
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(f"--event starts as JSON and is not valid JSON: {error}") from None
    return text
