"""What an agent declares: descriptors of skills, connections and chat models, and their class names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flink_skills.errors import ConfigError, near_misses
from flink_skills.other_frameworks import RESOURCES

__all__ = ["ResourceDescriptor", "ResourceName"]


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
            ``api_key_env`` (the *name* of an environment variable: values of secrets never enter a plan). A setup takes
            ``connection``, ``model``, ``skill_names``, ``tools``, ``prompt``, ``strategy``, ``on_incomplete``,
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
                    "give the name of an environment variable with api_key_env="
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
