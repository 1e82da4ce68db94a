"""Messages between an agent and a chat model, as plain data.

They are types of this package, not of a client library, because Flink state contains them. Their form can only change
with a new state version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Union

from flink_skills.tools.base import ToolSpec
from flink_skills.tools.media import Media

__all__ = [
    "DOCUMENTS",
    "NO_USAGE",
    "AssistantMessage",
    "Media",
    "Message",
    "ModelRequest",
    "ModelResponse",
    "ToolCall",
    "ToolMessage",
    "Usage",
    "UserMessage",
    "Verbatim",
]


#: ``holds`` in a result that has only documents.
DOCUMENTS = "docs"


@dataclass(frozen=True)
class ToolCall:
    """A tool call that a model requests.

    ``arguments`` are those that the model wrote, before any check: an object, or a string that contains no JSON object.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True)
class Usage:
    """Tokens and requests. Adds up with ``+``.

    ``input_tokens`` includes ``cache_read_tokens``, which the provider read from its cache, and ``cache_write_tokens``,
    which it wrote to its cache. ``output_tokens`` includes ``reasoning_tokens``. Each of the three is 0 if the provider
    does not report it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.requests + other.requests,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    @property
    def cached_share(self) -> float:
        """The share of the input tokens that the provider read from its cache, from 0 to 1.

        >>> Usage(2000, cache_read_tokens=1500).cached_share
        0.75
        """
        return round(min(self.cache_read_tokens / self.input_tokens, 1.0), 4) if self.input_tokens > 0 else 0.0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


NO_USAGE = Usage()


@dataclass(frozen=True)
class Verbatim:
    """A message of a model in the form in which its provider returned it.

    It exists only for a message with parts that the provider wants back unchanged, such as signed reasoning. ``model``
    is the label of the model that returned it: no other model gets it. ``raw`` is its JSON text, whose shape belongs to
    the wire of that model.
    """

    model: str
    raw: str


@dataclass(frozen=True)
class UserMessage:
    """A message of a user or of an event. ``media`` are its images, PDF documents and audio."""

    content: str
    media: tuple[Media, ...] = ()


@dataclass(frozen=True)
class AssistantMessage:
    """A message of the model, with its tool calls. ``verbatim`` is the message in the form of its provider."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    verbatim: Verbatim | None = field(default=None, repr=False)

    media: ClassVar[tuple[Media, ...]] = ()


@dataclass(frozen=True)
class ToolMessage:
    """The result of one tool call, for the model.

    ``skill`` is the skill that the call loaded, or chose documents of. With ``stub`` the content only says so, and a
    request may have what is loaded in its place. ``holds`` is the digest of the skill whose instructions the content
    holds, or :data:`DOCUMENTS`; empty for one that holds neither. In requests a line replaces content that
    is no longer loaded. ``media`` are the images, PDF documents and audio of the result.
    """

    call_id: str
    name: str
    content: str
    is_error: bool = False
    skill: str = ""
    stub: bool = False
    holds: str = ""
    media: tuple[Media, ...] = ()


Message = Union[UserMessage, AssistantMessage, ToolMessage]


@dataclass(frozen=True)
class ModelRequest:
    """One request to a chat model.

    ``system`` is the whole system text (instructions and skill menu), ``tools`` what the model may call
    now, ``output_schema`` a JSON schema that the final answer must fit, ``settings`` provider-neutral
    settings (``temperature``, ``max_tokens``, ``top_p``, ``seed``), ``timeout`` seconds for this request. With
    ``describes_schema`` the system text says what the answer must look like: a provider that takes no schema needs no
    more of it.

    The ``media`` of the messages are of the kinds that the model accepts (:attr:`ChatModel.accepts`). Each has its
    ``data``, or a ``location`` that is an ``https://`` URL for the provider to read.

    Requests with the same ``affinity`` belong together: they are about the same key of the same agent. It is a digest,
    and empty if no turn sends them. ``attempt`` is 0 for the first attempt at a request.
    """

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    output_schema: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    describes_schema: bool = False
    affinity: str = ""
    attempt: int = 0


@dataclass(frozen=True)
class ModelResponse:
    """An answer of a model: text, tool calls or both.

    ``finish_reason`` is the reason why it ended, by the name that its provider gives. The turn reads what it means, and
    replaces it with a name that is the same for all providers. ``verbatim`` is set if its provider wants parts of it
    back. ``instead`` names what an answer without text and calls contains, such as reasoning.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish_reason: str = ""
    verbatim: Verbatim | None = field(default=None, repr=False)
    instead: str = ""
