"""The conversation between an agent and a chat model, as plain data.

These are the package's own types and not a client library's: they go into Flink state, so their
form may only change with a new state version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from flink_skills.tools.base import ToolSpec

__all__ = [
    "NO_USAGE",
    "AssistantMessage",
    "Message",
    "ModelRequest",
    "ModelResponse",
    "ToolCall",
    "ToolMessage",
    "Usage",
    "UserMessage",
]


@dataclass(frozen=True)
class ToolCall:
    """A tool call that a model asks for. ``arguments`` is what the model wrote, checked by nobody yet:
    an object, or the raw text where it was no JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True)
class Usage:
    """Tokens and requests. Adds up with ``+``."""

    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.requests + other.requests,
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


NO_USAGE = Usage()


@dataclass(frozen=True)
class UserMessage:
    """What a user, or an event, says."""

    content: str


@dataclass(frozen=True)
class AssistantMessage:
    """What the model said and which tools it called."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class ToolMessage:
    """The result of one tool call, for the model.

    ``skill`` is the skill that the call loaded, or chose documents of. With ``stub`` the content only says so, and a
    request may have what is loaded in its place. ``holds`` is the digest of the skill whose instructions the content
    holds; empty for one that holds none.
    """

    call_id: str
    name: str
    content: str
    is_error: bool = False
    skill: str = ""
    stub: bool = False
    holds: str = ""


Message = Union[UserMessage, AssistantMessage, ToolMessage]


@dataclass(frozen=True)
class ModelRequest:
    """One request to a chat model.

    ``system`` is the whole system text (instructions and skill menu), ``tools`` what the model may call
    now, ``output_schema`` a JSON schema that the final answer must fit, ``settings`` provider-neutral
    settings (``temperature``, ``max_tokens``, ``top_p``, ``seed``), ``timeout`` seconds for this request. With
    ``describes_schema`` the system text says what the answer must look like: a provider that takes no schema needs no
    more of it.
    """

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    output_schema: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    describes_schema: bool = False


@dataclass(frozen=True)
class ModelResponse:
    """What a model answered: text, tool calls or both."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish_reason: str = ""
