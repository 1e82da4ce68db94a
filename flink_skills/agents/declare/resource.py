"""Declared resources of agents and environments: descriptors of skills, connections and chat models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from flink_skills.errors import ConfigError, near_misses
from flink_skills.manager.scope import SOURCE_KINDS
from flink_skills.models.registry import class_advice, provider_names
from flink_skills.options import SkillOptions
from flink_skills.other_frameworks import RESOURCES
from flink_skills.prompts import Prompt, check_instructions
from flink_skills.resource import Resource
from flink_skills.sources import SourceSpec


class _Names(type):
    """Explains a name of another framework."""

    def __getattr__(cls, name: str) -> str:
        near = near_misses(name, [known for known in vars(cls) if known.isupper()])
        advice = RESOURCES.get(name) or (f"did you mean {near[0]}?" if near else "")
        raise AttributeError(f"{cls.__qualname__} has no {name}{': ' if advice else ''}{advice}")


class ResourceName(metaclass=_Names):
    """Names for ``ResourceDescriptor(clazz=…)``."""

    SKILLS_MANAGER = "skills.manager"
    MCP_SERVER = "mcp.server"

    class ChatModel(metaclass=_Names):
        """Connections and setups of chat models, by provider.

        Any ``provider:model`` string that pydantic-ai knows may stand in place of a setup's name.
        """

        OPENAI_CONNECTION = "openai.connection"
        OPENAI_SETUP = "openai.setup"
        OPENAI_COMPLETIONS_CONNECTION = "openai.connection"
        OPENAI_COMPLETIONS_SETUP = "openai.setup"
        OPENAI_RESPONSES_CONNECTION = "openai-responses.connection"
        OPENAI_RESPONSES_SETUP = "openai-responses.setup"
        AZURE_OPENAI_CONNECTION = "azure.connection"
        AZURE_OPENAI_SETUP = "azure.setup"
        OPENAI_COMPATIBLE_CONNECTION = "openai-compatible.connection"
        OPENAI_COMPATIBLE_SETUP = "openai-compatible.setup"
        VLLM_CONNECTION = "openai-compatible.connection"
        VLLM_SETUP = "openai-compatible.setup"
        ANTHROPIC_CONNECTION = "anthropic.connection"
        ANTHROPIC_SETUP = "anthropic.setup"
        OLLAMA_CONNECTION = "ollama.connection"
        OLLAMA_SETUP = "ollama.setup"
        OFFLINE_CONNECTION = "offline.connection"
        OFFLINE_SETUP = "offline.setup"


class ResourceDescriptor:
    """A declaration: which class of resource, with which arguments.

    Args:
        clazz: A constant of :class:`ResourceName`, or a ``provider:model`` string for a chat model.
        arguments: What the resource takes. A connection takes ``base_url``, or ``base_urls`` for equal servers, and
            ``api_key_env`` (the *name* of an environment variable: values of secrets never enter a plan) or
            ``api_key_file`` (the path of a file that is read again when it changes). A setup takes ``connection``,
            ``model``, ``skill_names``, ``tools``, ``prompt``, ``strategy``, ``on_incomplete``,
            ``price`` (USD per million tokens, such as ``{"input": 1.25, "output": 10.0}``, where the lists of prices
            do not know it; ``cache_read`` and ``cache_write`` are the prices of tokens of caches), ``fallback`` (a list
            of chat models of the agent, or of ``provider:model``, that answer if this one does not), and model settings
            such as ``temperature`` and ``max_tokens``. Skills take ``paths``, ``resources``, ``urls``, ``skills`` (a
            list of :class:`AgentSkill`) and ``skill_names``. An MCP server (streamable HTTP) takes ``endpoint``,
            ``headers``, ``timeout`` (seconds), ``sse_read_timeout`` (seconds) and ``auth``.

    >>> ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=["/opt/skills"]).arguments
    {'paths': ['/opt/skills']}
    """

    __slots__ = ("arguments", "clazz")

    def __init__(self, clazz: str, **arguments: Any) -> None:
        if not isinstance(clazz, str) or not clazz:
            raise ConfigError(
                f"ResourceDescriptor(clazz={clazz!r}): give a constant of ResourceName or 'provider:model'"
            )
        for secret in ("api_key", "token", "password"):
            if secret in arguments:
                raise ConfigError(
                    f"ResourceDescriptor({clazz!r}): {secret}= would put a secret into the plan; "
                    "give the name of an environment variable with api_key_env=, or a file with api_key_file="
                )
        self.clazz = clazz
        self.arguments: Mapping[str, Any] = arguments

    def __repr__(self) -> str:
        # URLs may hold credentials, and a repr ends in logs.
        args = "".join(f", {k}={'…' if k == 'urls' else repr(v)}" for k, v in self.arguments.items())
        return f"ResourceDescriptor({self.clazz!r}{args})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResourceDescriptor):
            return NotImplemented
        return (self.clazz, dict(self.arguments)) == (other.clazz, dict(other.arguments))

    def __hash__(self) -> int:
        return hash(self.clazz)


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


SOURCE_OPTIONS = {
    SkillOptions.FROM_PATHS.key: "paths",
    SkillOptions.FROM_RESOURCES.key: "resources",
    SkillOptions.FROM_URLS.key: "urls",
}


def declared_sources(kind: str, value: Any) -> tuple[SourceSpec, ...]:
    """Return the sources of one kind (``"paths"``, ``"resources"`` or ``"urls"``).

    ``value`` is one source or a list: strings, paths, mappings with pins (``{"url": …, "sha256": …}``) or
    :class:`SourceSpec`. Raises :class:`ConfigError`, which shows no value because it may hold a credential.
    """
    items = (value,) if isinstance(value, (str, Mapping, SourceSpec, PurePath)) else value
    if not isinstance(items, Sequence):
        raise ConfigError(
            f"{kind}: a value of type {type(value).__name__} is not a valid source; pass a list of strings or mappings"
        )
    one = SOURCE_KINDS[kind]
    return tuple(SourceSpec.parse(one, str(item) if isinstance(item, PurePath) else item) for item in items)


def source_strings(key: str, value: object) -> object:
    """Return the value of an option. A list of sources for ``skills.from.*`` is checked and becomes strings.

    Values of options are plain data, which plans and JSON contain. Raises :class:`ConfigError`.
    """
    if key not in SOURCE_OPTIONS or isinstance(value, str):
        return value
    return tuple(map(str, declared_sources(SOURCE_OPTIONS[key], value)))
