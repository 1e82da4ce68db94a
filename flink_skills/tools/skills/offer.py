"""Which tools a model can call once a skill is loaded: those of the job's pool, and those that the skill brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flink_skills.errors import SkillsError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.state import ALL, LoadedSkill, SkillState, load_effect

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.services import ToolServices

__all__ = ["Brought", "Offer", "describe_brought", "had_tools", "offer_of", "pool_names"]


class Brought(NamedTuple):
    """The tools that a skill brings itself, and what there is to say of them."""

    specs: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offer:
    """The names of the tools that a model can call with a skill, and of those that it would have and that are not
    here (row C17: not in the pool, or spelled differently)."""

    tools: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """What a model is told."""
        found = []
        if self.tools:
            many = "1 tool" if len(self.tools) == 1 else f"{len(self.tools)} tools"
            found.append(f"With {many}: {', '.join(self.tools)}")
        if self.missing:
            found.append(f"Not available here: {', '.join(self.missing)}")
        return found

    def to_json(self) -> dict[str, Any]:
        """``tools`` and ``missing_tools``, where there are any."""
        return ({"tools": list(self.tools)} if self.tools else {}) | self.missing_json()

    def missing_json(self) -> dict[str, Any]:
        return {"missing_tools": list(self.missing)} if self.missing else {}


async def describe_brought(name: str, services: ToolServices, view: SkillView, context: ToolContext) -> Brought:
    """The tools that skill ``name`` brings itself. It can be used without them where asking it fails."""
    skill = view.get(name)
    if services.bundled is None or not services.settings.bundled or skill is None:
        return Brought()
    if not services.bundled.brings_tools(skill):
        return Brought()
    try:
        await context.need_workspace()
        found = await services.bundled.describe(skill, context)
    except SkillsError as error:
        return Brought(notes=(f"The tools that it brings cannot be used: {error}",))
    return Brought(tuple(found.specs), tuple(f"Of the tools that it brings: {text}" for text in found.problems))


async def offer_of(
    name: str, loaded: LoadedSkill, services: ToolServices, view: SkillView, context: ToolContext
) -> Offer:
    """The tools of skill ``name`` once it is loaded as ``loaded`` says, beside what else is loaded.

    A job without a pool has nothing that a ``Tools:`` section could activate: then it is for information only (row A9).
    """
    if services.pool is None and not loaded.bundled:
        return Offer()
    # Not above: models without such tools do not need any of this.
    from flink_skills.tools.dynamic.active import active_tools

    pool = await services.pool.tools(context) if services.pool is not None else {}
    state = SkillState.from_json(context.skill_state.to_json()) if context.skill_state is not None else SkillState()
    state.apply(load_effect(name, loaded.digest, docs=loaded.docs, tools=loaded.tools, bundled=loaded.bundled))
    bundled = services.bundled if services.settings.bundled else None
    taken = {*services.settings.tools, *services.own_tools}
    active = active_tools(state, view, pool, bundled, taken)
    brought = {str(spec["name"]) for spec in loaded.bundled}
    wanted = had_tools(view.declared_tools(name), loaded)
    names = [tool.spec.name for tool in active.tools if active.origin[tool.spec.name] == name]
    # Another skill may have activated it before: it is there all the same.
    names += [tool for tool in wanted if tool in active.origin and tool in pool and tool not in names]
    missing = [tool for tool in wanted if tool not in active.origin and tool not in brought]
    return Offer(tuple(names), tuple(missing))


def had_tools(declared: Sequence[str], loaded: LoadedSkill) -> tuple[str, ...]:
    """The names that a skill's selection stands for: with none made, what it declares, or brings without a word."""
    brought = [str(spec["name"]) for spec in loaded.bundled]
    if loaded.tools == ALL:
        return tuple(dict.fromkeys((*declared, *brought)))
    if loaded.tools is not None:
        return tuple(loaded.tools)
    return tuple(dict.fromkeys((*declared, *([] if set(declared) & set(brought) else brought))))


async def pool_names(services: ToolServices, context: ToolContext) -> list[str]:
    """The names of the job's tools that any skill may be given."""
    return list(await services.pool.tools(context)) if services.pool is not None else []
