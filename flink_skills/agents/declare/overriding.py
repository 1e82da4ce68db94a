"""Chat models that replace those of agents meanwhile, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.models.base import ChatModel
from flink_skills.models.messages import ModelRequest, ModelResponse
from flink_skills.models.registry import ModelSetup, check_setup, create_model
from flink_skills.options import SkillConfig
from flink_skills.telemetry import OnDelta

__all__ = ["ModelOverrides", "current_overrides", "override_models"]

Replacement = ChatModel | str
"""A model, or ``"provider:model"``."""

_current: ContextVar[ModelOverrides | None] = ContextVar("flink_skills_model_overrides", default=None)


class Named(Protocol):
    """A chat model of a plan, or a fallback of one."""

    @property
    def name(self) -> str: ...


class Model(Named, Protocol):
    """A chat model of a plan."""

    @property
    def fallback(self) -> Sequence[Named]: ...


class Planned(Protocol):
    """An agent of a plan: the plans themselves import agents, which import this module."""

    @property
    def agent_id(self) -> str: ...

    @property
    def models(self) -> Sequence[Model]: ...

    def tree(self) -> Iterator[Planned]: ...


class ModelOverrides:
    """Replacements of models by the id of their agent; an agent that is a tool has those of its caller, or its own."""

    def __init__(self, by_agent: Mapping[str, Mapping[str, Replacement] | Replacement] | None = None) -> None:
        self._by_agent = dict(by_agent or {})

    def with_agent(self, agent: str, models: Mapping[str, Replacement] | Replacement) -> ModelOverrides:
        """Return these replacements and those of ``agent``."""
        return ModelOverrides({**self._by_agent, agent: models})

    def __or__(self, other: ModelOverrides) -> ModelOverrides:
        return ModelOverrides({**self._by_agent, **other._by_agent})

    def of(self, plan: Planned) -> bool:
        """Return True if a model of ``plan``, or of an agent that it calls, is replaced.

        Raises :class:`UnknownNameError` for a replacement of a model that the agent does not have.
        """
        for each in plan.tree():
            models = self._by_agent.get(each.agent_id)
            for name in models if isinstance(models, Mapping) else ():
                known = [of.name for model in each.models for of in (model, *model.fallback)]
                if name not in known:
                    raise UnknownNameError("chat model", name, known, place=f"override of agent {each.agent_id}")
        return any(each.agent_id in self._by_agent for each in plan.tree())

    def model(self, callers: tuple[str, ...], model: Named, config: SkillConfig) -> ChatModel | None:
        """Return what replaces ``model`` of the last of ``callers``, ids of agents that call each other; None: nothing.

        An agent's own replacement takes precedence over one of its callers.
        """
        for agent in reversed(callers):
            models = self._by_agent.get(agent)
            if isinstance(models, Mapping):
                # Names are those of this agent's models alone.
                models = models.get(model.name) if agent == callers[-1] else None
            if models is not None:
                return _Borrowed(models) if isinstance(models, ChatModel) else create_model(_setup(models), config)
        return None


class _Borrowed(ChatModel):
    """A model of the caller, which outlives the agents that use it."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name = model.name
        self.accepts = model.accepts

    async def request(self, request: ModelRequest) -> ModelResponse:
        return await self._model.request(request)

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        return await self._model.stream(request, on_delta)


def current_overrides() -> ModelOverrides:
    """Return the replacements that are in effect here."""
    return _current.get() or ModelOverrides()


@contextlib.contextmanager
def override_models(agent: str, model: Mapping[str, Replacement] | Replacement) -> Iterator[Any]:
    """Replace the chat models of the agent with the id ``agent``. See :meth:`Agent.override`."""
    for one in model.values() if isinstance(model, Mapping) else [model]:
        if isinstance(one, str):
            check_setup(_setup(one), place=f"override of agent {agent}")
        elif not isinstance(one, ChatModel):
            raise ConfigError(
                f"override of agent {agent}: model is of type {type(one).__name__}: give a ChatModel, such as "
                "flink_skills.testing.ScriptedModel, a text such as 'offline', or a dict of them by the model's name"
            )
    token = _current.set(current_overrides().with_agent(agent, model))
    try:
        yield model
    finally:
        _current.reset(token)


def _setup(text: str) -> ModelSetup:
    return ModelSetup.parse(text)
