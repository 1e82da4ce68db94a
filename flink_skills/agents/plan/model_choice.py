"""Checks, when an agent is compiled, of what chooses its chat models: their fallbacks, and the route of the agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from flink_skills.agents.declare.declaration import Declaration, name_list
from flink_skills.agents.plan.plan import ModelPlan
from flink_skills.errors import ConfigError, PlanError, SkillsError, UnknownNameError
from flink_skills.models.fallback import Fallback
from flink_skills.models.registry import check_setup, provider_names
from flink_skills.models.setup import SETTINGS, ModelSetup
from flink_skills.tools.tool_names import matches

__all__ = ["check_route", "with_fallbacks"]

# Settings whose content is for one provider.
_OF_PROVIDER = ("cache_key", "extra_body", "extra_headers", "session_header")


def with_fallbacks(declared: Declaration, models: Sequence[ModelPlan]) -> list[ModelPlan]:
    """Return ``models`` with the fallbacks that their setups name.

    Raises:
        UnknownNameError: A fallback is neither a chat model of the agent nor ``provider:model``.
        PlanError: A model names itself or another one twice, or a fallback may see less than the model.
    """
    by_name = {model.name: model for model in models}
    found = []
    for model in models:
        place = f"chat model {model.name!r} of agent {declared.agent_id}"
        try:
            names = name_list(declared.setups[model.name].arguments.get("fallback"), f"{place}: fallback") or ()
        except ConfigError as error:
            raise PlanError(str(error)) from error
        for at, name in enumerate(names):
            if name == model.name or name in names[:at]:
                what = "the model itself" if name == model.name else "listed twice"
                raise PlanError(f"{place}: fallback: {name!r} is {what}; remove it")
        found.append(replace(model, fallback=tuple(_fallback(declared, model, name, by_name, place) for name in names)))
    return found


def _fallback(
    declared: Declaration, model: ModelPlan, name: str, models: Mapping[str, ModelPlan], place: str
) -> Fallback:
    if name in models:
        _check_scope(declared, model, models[name], place)
        return Fallback(name, models[name].setup)
    if ":" not in name and name not in provider_names():
        raise UnknownNameError("chat model", name, models, place=f"fallback of {place}")
    setup = _setup_like(model.setup, name)
    if setup.label == model.setup.label:
        raise PlanError(f"{place}: fallback: {name!r} is the model itself; remove it")
    try:
        check_setup(setup)
    except UnknownNameError:
        raise
    except SkillsError as error:
        raise PlanError(f"{place}: fallback: {error}; or declare {name!r} as a chat model and name that") from error
    return Fallback(name, setup)


def _setup_like(first: ModelSetup, text: str) -> ModelSetup:
    """Return the setup of ``provider:model``: as ``first`` if the provider is the same, else with its neutral
    settings."""
    setup = ModelSetup.parse(text)
    if setup.provider == first.provider:
        return replace(first, model=setup.model, price=None)
    neutral = {key: of for key, of in first.settings.items() if key in SETTINGS and key not in _OF_PROVIDER}
    return replace(setup, settings=neutral, strategy=first.strategy)


def _check_scope(declared: Declaration, model: ModelPlan, fallback: ModelPlan, place: str) -> None:
    """Raise :class:`PlanError` if ``fallback`` may not see all skills and tools of ``model``."""
    skills = _filter(declared, model)
    if fallback.skill_names is not None and (skills is None or not skills <= set(fallback.skill_names)):
        raise _narrower(place, fallback, "skill_names", skills and skills - set(fallback.skill_names))
    tools = model.tools
    if tools is None and not declared.toolsets:
        tools = (*declared.own_tools, *declared.agents)
    allowed = fallback.tools
    if allowed is not None and (tools is None or not all(matches(tool, allowed) for tool in tools)):
        missing = None if tools is None else {tool for tool in tools if not matches(tool, allowed)}
        raise _narrower(place, fallback, "tools", missing)


def _filter(declared: Declaration, model: ModelPlan) -> set[str] | None:
    filters = [set(names) for names in declared.skill_filters]
    if model.skill_names is not None:
        filters.append(set(model.skill_names))
    return set.intersection(*filters) if filters else None


def _narrower(place: str, fallback: ModelPlan, key: str, missing: Collection[str] | None) -> PlanError:
    what = "skills" if key == "skill_names" else key
    lacks = f"lacks {', '.join(sorted(missing))}" if missing else f"lacks some of these {what}"
    return PlanError(
        f"{place}: fallback: {fallback.name!r} would get the {what} of this model, and its own {key} {lacks}: "
        f"add them there, remove {key} there, or choose another fallback"
    )


def check_route(declared: Declaration, models: Sequence[ModelPlan]) -> None:
    """Raise :class:`UnknownNameError` if the route of the agent names a chat model that the agent does not have."""
    names = [model.name for model in models]
    for name in declared.route.names if declared.route is not None else ():
        if name not in names:
            raise UnknownNameError("chat model", name, names, place=f"the route of agent {declared.agent_id}")
