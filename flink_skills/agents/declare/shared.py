"""Resources that all agents of a job share: connections, chat model setups and prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flink_skills.agents.declare.resource import ResourceDescriptor, ResourceName
from flink_skills.errors import ConfigError
from flink_skills.models.registry import class_advice, provider_names
from flink_skills.prompts import Prompt, check_instructions
from flink_skills.resource import Resource

__all__ = ["SharedResources"]

_INSTEAD = {
    "skills": "use add_skills_from_paths, add_skills_from_resources, add_skills_from_urls or add_skills",
    "tool": "use register_tool in a module of the job, and name the tool in @tool_set",
    "chat_model_connection": "give a ResourceDescriptor: a connection is made in the workers",
    "chat_model_setup": "give a ResourceDescriptor, such as ResourceDescriptor(clazz='openai:NAME')",
}


@dataclass(frozen=True)
class SharedResources:
    """Connections, chat model setups and prompts by name. Two kinds may use the same name."""

    connections: Mapping[str, ResourceDescriptor] = field(default_factory=dict)
    setups: Mapping[str, ResourceDescriptor] = field(default_factory=dict)
    prompts: Mapping[str, Prompt] = field(default_factory=dict)

    def with_resource(self, name: str, resource: Any) -> SharedResources:
        """Return these resources and ``resource``.

        Args:
            name: The name, which is unique among the resources of its kind.
            resource: A :class:`ResourceDescriptor` of a connection or a chat model setup, a prompt, or its text.

        Raises:
            ConfigError: ``name`` is empty or in use, or ``resource`` cannot be shared.
        """
        if not isinstance(name, str) or not name:
            raise ConfigError(f"add_resource({name!r}, …): the name must be a string that is not empty")
        kind, value = _classified(name, resource)
        if name in getattr(self, kind):
            raise ConfigError(f"add_resource({name!r}, …): the job has {_WORDS[kind]} of this name; use another one")
        return SharedResources(
            **{each: {**getattr(self, each), **({name: value} if each == kind else {})} for each in _WORDS}
        )


_WORDS = {"connections": "a connection", "setups": "a chat model setup", "prompts": "a prompt"}


def _classified(name: str, resource: Any) -> tuple[str, Any]:
    """Return the kind of a resource, and what is kept of it."""
    place = f"add_resource({name!r}, …)"
    if isinstance(resource, str):
        prompt = resource if isinstance(resource, Prompt) else Prompt(resource)
        check_instructions(prompt.system, place)
        return "prompts", prompt
    if isinstance(resource, ResourceDescriptor):
        if resource.clazz == ResourceName.SKILLS_MANAGER:
            raise ConfigError(f"{place}: sources of skills belong to the job: {_INSTEAD['skills']}")
        if resource.clazz.endswith(".connection"):
            return "connections", resource
        if resource.clazz.endswith(".setup") or ":" in resource.clazz:
            return "setups", resource
        raise ConfigError(
            f"{place}: clazz {resource.clazz!r} is neither a connection nor a chat model setup: "
            f"{class_advice(resource.clazz, 'setup', provider_names())}"
        )
    kind = resource.resource_type if isinstance(resource, Resource) else None
    advice = _INSTEAD.get(kind or "", "pass a ResourceDescriptor, a Prompt or a string")
    raise ConfigError(f"{place}: a {type(resource).__name__} cannot be shared; {advice}")
