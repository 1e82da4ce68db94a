"""The interface of a wire, which maps conversations to the JSON of one HTTP API and back."""

from __future__ import annotations

import hashlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flink_skills.models.messages import AssistantMessage, Message, ModelRequest, ModelResponse, Usage
from flink_skills.models.wires.json_bytes import dump
from flink_skills.telemetry import OnDelta
from flink_skills.tools.arguments import check_size
from flink_skills.tools.base import ToolSpec

Schema = Mapping[str, Any] | None
# The attribute of a message that holds the JSON of its conversation up to this message.
_KEPT = "_encoded_prefix"
# A request looks this far back for the end of the one before: one response has at most a few hundred calls.
_FARTHEST = 600
# Bytes that are kept of a conversation: one with images has more, and is encoded again.
_MAX = 1 << 20
# Values of a streamed answer, without strings.
_MAX_VALUES = 100_000
# Names in a usage.
_MAX_NUMBERS = 256
# Settings whose fields are kept.
_MAX_SETTINGS = 16


class _Prefix(NamedTuple):
    owner: object
    messages: list[Message]
    data: bytes


class Prefixes:
    """Encodes conversations, and keeps the JSON with the last message of each.

    The JSON therefore lives as long as the session of the conversation does in the worker's cache. ``encode`` and
    ``joins`` are :meth:`Wire.encoded` and :meth:`Wire.joins`.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[Message], int], tuple[bytes, int]],
        joins: Callable[[Message, Message], bool],
    ) -> None:
        self._encode = encode
        self._joins = joins

    def encoded(self, messages: Sequence[Message]) -> bytes:
        """Return the JSON of ``messages``, separated by commas."""
        listed = messages if isinstance(messages, list) else list(messages)
        at, pieces = self._begin(listed)
        while at < len(listed):
            piece, number = self._encode(listed, at)
            pieces.append(piece)
            at += number
        data = b",".join(pieces)
        if listed and len(data) <= _MAX:
            _attributes(listed[-1])[_KEPT] = _Prefix(self, list(listed), data)
        return data

    def _begin(self, messages: list[Message]) -> tuple[int, list[bytes]]:
        """Return how many messages the kept JSON of an earlier request covers, and that JSON."""
        for end in range(len(messages), max(0, len(messages) - _FARTHEST), -1):
            kept: _Prefix | None = _attributes(messages[end - 1]).get(_KEPT)
            if kept is None:
                continue
            # Compares identities in the usual case. An equal message has equal JSON.
            if kept.owner is self and kept.messages == messages[:end]:
                if end < len(messages) and self._joins(messages[end - 1], messages[end]):
                    continue
                # One copy for a conversation is enough. The new one is longer.
                _attributes(messages[end - 1]).pop(_KEPT, None)
                return end, [kept.data]
        return 0, []


def _attributes(message: Message) -> dict[str, Any]:
    # Messages are frozen: this is not a field, so equality and the stored form are unaffected.
    return message.__dict__


class NoCompletionError(ValueError):
    """An answer with a good status that is not an answer of this wire."""


class StreamReader(ABC):
    """Folds the events of one streamed answer into the shape of a whole body, whose response ``read`` returns."""

    def __init__(self, read: Callable[[Any], ModelResponse]) -> None:
        self._read = read
        self._kept = 0
        self._id = ""
        self._usage: dict[str, Any] = {}
        #: Whether the answer has ended. Its usage can follow.
        self.is_over = False

    @abstractmethod
    def event(self, data: Mapping[str, Any], on_delta: OnDelta) -> None:
        """Take one event, and pass its text and tool calls on. An event of another kind is ignored.

        Raises :class:`ValueError` for a piece that belongs to no part of the answer, and for too many parts.
        """

    @abstractmethod
    def body(self) -> Mapping[str, Any]:
        """Return the body as far as it arrived."""

    def response(self) -> ModelResponse | None:
        """Return the response of the body. Return None if the stream ended before the answer did."""
        return self._read(self.body()) if self.is_over else None

    def _identify(self, id_: Any) -> None:
        if id_ and not self._id:
            self._id = str(id_)

    def _count(self, usage: Any) -> None:
        """Add the numbers of a usage. Later events repeat them, replace them by 0, or add others."""
        if isinstance(usage, dict) and len(usage) + len(self._usage) <= _MAX_NUMBERS:
            self._usage.update({name: value for name, value in usage.items() if value})

    def _keep(self, value: Any, *, is_new: bool = False) -> Any:
        """Return a value that becomes a part of the body. Raises :class:`ValueError` for too many of them.

        A new name (``is_new``) counts as ten, because its value can be a string.
        """
        if is_new or isinstance(value, (dict, list)):
            self._kept += 10 * is_new + 1 + check_size(value, _MAX_VALUES)
            if self._kept > _MAX_VALUES:
                raise ValueError(f"the stream has more than {_MAX_VALUES:,} values that are not strings")
        return value

    def _call_id(self, number: int) -> str:
        """Return the id that the wire gives a call without one."""
        self._id = self._id or uuid.uuid4().hex
        return f"call-{self._id}-{number}"

    @property
    def counted(self) -> Mapping[str, Any]:
        """The usage that the events stated so far, as the API writes it."""
        return self._usage


class Wire(ABC):
    """One HTTP API. It has no state of a conversation, and serves all requests of one model.

    ``label`` is the label of the model, and ``path`` the part of the address behind the base URL.
    """

    path: str

    def __init__(self, label: str, model: str) -> None:
        self.label = label
        self.model = model
        self._prefixes = Prefixes(self.encoded, self.joins)
        #: Whether the server takes ``prompt_cache_key``. A setting can say otherwise.
        self.has_cache_keys = False
        #: Whether the server rejected it.
        self.rejects_cache_keys = False
        #: Makes the digests different for each API key.
        self.salt = b""

    @abstractmethod
    def usage(self, stated: Mapping[str, Any]) -> Usage:
        """Return the usage that a body states in ``usage``."""

    @abstractmethod
    def body(self, request: ModelRequest, settings: Mapping[str, Any], *, stream: bool) -> bytes:
        """Return the body of a request. ``settings`` are those of the model and of the request together."""

    def session(self, request: ModelRequest) -> str:
        """Return the digest that identifies the key to a provider and does not disclose it."""
        return hashlib.blake2b(request.affinity.encode(), key=self.salt, digest_size=16).hexdigest()

    def cache_key(self, request: ModelRequest, settings: Mapping[str, Any]) -> bytes:
        """Return the field with which requests about one key meet the same cache, with a comma before it."""
        wanted = settings.get("cache_key", "auto")
        if wanted == "auto":
            wanted = self.has_cache_keys and settings.get("cache") not in (False, "off")
        if not wanted or self.rejects_cache_keys or not request.affinity:
            return b""
        if "openai_prompt_cache_key" in settings or "prompt_cache_key" in (settings.get("extra_body") or ()):
            return b""
        return b',"prompt_cache_key":"%b"' % self.session(request).encode()

    def headers(self, settings: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the headers that settings add to a request."""
        return {str(name): str(value) for name, value in (settings.get("extra_headers") or {}).items()}

    def takes_schema(self, schema: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
        """Return whether the API enforces an output schema. Otherwise the schema goes into the system text."""
        return True

    @abstractmethod
    def response(self, data: Any) -> ModelResponse:
        """Return the answer of a decoded body. Raises :class:`NoCompletionError`."""

    @abstractmethod
    def reader(self) -> StreamReader:
        """Return a reader for one streamed answer."""

    @abstractmethod
    def encoded(self, messages: Sequence[Message], at: int) -> tuple[bytes, int]:
        """Return the JSON of one message of the wire, and how many messages from ``at`` on are in it.

        It must not depend on messages before ``at``.
        """

    def joins(self, before: Message, message: Message) -> bool:
        """Return whether ``message`` goes into the same message of the wire as the one before it.

        Two messages of one role in sequence are one message: many servers and chat templates reject two. A result of a
        tool can end with media that only the user may send.
        """
        return isinstance(before, AssistantMessage) == isinstance(message, AssistantMessage)

    def messages(self, messages: Sequence[Message]) -> bytes:
        """Return the JSON of the messages, separated by commas. Only those since the last request are encoded."""
        return self._prefixes.encoded(messages)


_MAX_KEPT = 64


class Fixed:
    """Cache of the JSON of system prompts and of sets of tools. ``encode_tool`` returns the JSON of one tool."""

    def __init__(self, encode_tool: Callable[[ToolSpec], bytes]) -> None:
        self._encode_tool = encode_tool
        self._systems: dict[str, bytes] = {}
        # A key holds its tools, so that no other tool gets their ids.
        self._tools: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], bytes]] = {}

    def system(self, text: str, encode: Callable[[str], bytes]) -> bytes:
        """Return the JSON of a system text."""
        found = self._systems.get(text)
        if found is None:
            if len(self._systems) >= _MAX_KEPT:
                self._systems.pop(next(iter(self._systems)))
            found = self._systems[text] = encode(text)
        return found

    def tools(self, tools: Sequence[ToolSpec]) -> bytes:
        """Return the JSON of a set of tools, separated by commas."""
        key = tuple(map(id, tools))
        found = self._tools.get(key)
        if found is None:
            if len(self._tools) >= _MAX_KEPT:
                self._tools.pop(next(iter(self._tools)))
            found = self._tools[key] = (tuple(tools), b",".join(map(self._encode_tool, tools)))
        return found[1]


class SettingsFields(ABC):
    """Encodes the settings of one model as fields of a request, and keeps the JSON of the last ones."""

    def __init__(self, model: str) -> None:
        self._model = model
        # A value holds the settings and the schema, so that no others get their ids.
        self._kept: dict[tuple[Any, ...], tuple[Any, Any, bytes]] = {}

    @abstractmethod
    def fields(self, settings: Mapping[str, Any], schema: Schema, with_tools: bool, thinks: bool) -> dict[str, Any]:
        """Return the fields of a request for settings and an output schema.

        With ``thinks`` false, a budget for thinking is omitted: the conversation does not allow it.
        """

    def encoded(self, settings: Mapping[str, Any], schema: Schema, *, with_tools: bool, thinks: bool = True) -> bytes:
        """Return the fields as JSON that continues an object: each with a comma before it."""
        key = (id(settings), id(schema), with_tools, thinks)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _MAX_SETTINGS:
                self._kept.pop(next(iter(self._kept)))
            fields = dump(self.fields(settings, schema, with_tools, thinks))
            kept = self._kept[key] = (settings, schema, b"," + fields[1:-1])
        return kept[2]
