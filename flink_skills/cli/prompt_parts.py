"""The first request of a model with some tools for skills: its texts, and what each part of them costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flink_skills.agents.agent import Agent
from flink_skills.agents.compilation import compile_plan
from flink_skills.agents.described import described_models
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.skill.inspection import about_tokens
from flink_skills.tools.base import ToolSpec
from flink_skills.tools.skills.guidance import introduction

__all__ = ["FirstRequest", "Part", "first_request"]


class _Bare(Agent):
    """An agent without words of its own, so that what a model is sent is all for skills."""

    name = "prompt"
    model = "offline"


@dataclass(frozen=True)
class Part:
    """A part of a request; ``fixed`` says that it is the same for any skills."""

    name: str
    text: str = field(repr=False)
    fixed: bool = True

    @property
    def chars(self) -> int:
        return len(self.text)

    @property
    def tokens(self) -> int:
        """About: four characters make one."""
        return about_tokens(self.text)

    def to_json(self) -> dict[str, Any]:
        return {"part": self.name, "chars": self.chars, "tokens": self.tokens, "fixed": self.fixed}


@dataclass(frozen=True)
class FirstRequest:
    """What a model is sent before it has loaded a skill: the system text, and a JSON text for each tool.

    ``menu`` is the beginning of the system text, down to the end of the list of skills.
    """

    profile: str
    system: str
    menu: str
    tools: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def fixed(self) -> Part:
        """What does not depend on the skills."""
        return _sum("fixed", [part for part in self.parts if part.fixed])

    @property
    def total(self) -> Part:
        return _sum("total", self.parts)

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
    """The first request of a model with the skills ``view`` in a job with ``config``, and its parts.

    It is made as a turn makes it, but for the event. Names of skills in the schemas of tools are counted with the
    entries of the menu, since they come and go with the skills. Nothing is started and no folder is made.

    >>> request = first_request(manager.view(), SkillConfig())
    >>> [part.name for part in request.parts][:3]
    ['introduction', 'menu entries', 'guidance']
    """
    plan = compile_plan(_Bare, config=config)
    (name,) = (model.name for model in plan.models)
    model = described_models(plan, {name: view}).model(name)
    specs = model.tools.specs()
    menu = view.menu(introduction([spec.name for spec in specs])) if view.names else ""
    return FirstRequest(
        profile=model.settings.profile or ",".join(model.settings.tools),
        system=model.system,
        menu=menu,
        tools=tuple(_json(spec) for spec in specs),
        parts=(*_system_parts(model.system, menu), *_tool_parts(specs, sorted(view.names))),
    )


def _system_parts(system: str, menu: str) -> list[Part]:
    """The introduction with the frame of the list, the list, and what follows it."""
    before, opening, rest = menu.partition("<available_skills>\n")
    entries, closing, note = rest.partition("</available_skills>")
    return [
        Part("introduction", before + opening + closing),
        Part("menu entries", entries + note, fixed=False),
        Part("guidance", system[len(menu) :]),
    ]


def _tool_parts(specs: Sequence[ToolSpec], names: Sequence[str]) -> list[Part]:
    """Each tool without the skills' names, and these."""
    listed = "".join(_removed(spec.parameters, names) for spec in specs)
    bare = [ToolSpec(spec.name, spec.description, _without_names(spec.parameters, names)) for spec in specs]
    return [*(Part(spec.name, _json(spec)) for spec in bare), Part("skill names in tools", listed, fixed=False)]


def _without_names(schema: Any, names: Sequence[str]) -> Any:
    """``schema`` without enumerations of the skills' names."""
    if isinstance(schema, Mapping):
        return {key: _without_names(value, names) for key, value in schema.items() if key != "enum" or value != names}
    return [_without_names(value, names) for value in schema] if isinstance(schema, list) else schema


def _removed(schema: Any, names: Sequence[str]) -> str:
    """What :func:`_without_names` takes out, as it stands in a JSON text."""
    if isinstance(schema, Mapping):
        here = f'"enum":{_compact(names)},' if schema.get("enum") == names else ""
        return here + "".join(_removed(value, names) for value in schema.values())
    return "".join(_removed(value, names) for value in schema) if isinstance(schema, list) else ""


def _json(spec: ToolSpec) -> str:
    """A tool as it travels: name, description and parameters."""
    return _compact({"name": spec.name, "description": spec.description, "parameters": spec.parameters})


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sum(name: str, parts: Sequence[Part]) -> Part:
    return Part(name, "".join(part.text for part in parts))
