"""A chat model that this package asks over HTTP itself."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import aiohttp

from flink_skills.errors import ModelError
from flink_skills.models.base import ChatModel, emit_calls, emit_response
from flink_skills.models.circuit import Circuit
from flink_skills.models.client_errors import explain, status_of
from flink_skills.models.error_bodies import AnswerError, error_content, failure
from flink_skills.models.messages import ModelRequest, ModelResponse
from flink_skills.models.schemas import schema_in_text
from flink_skills.models.setup import ApiKey
from flink_skills.models.wires.connection import Connection, Replicas, read_bounded, text_of
from flink_skills.models.wires.json_bytes import decoded, object_of
from flink_skills.models.wires.wire import NoCompletionError, StreamReader, Wire
from flink_skills.telemetry import Delta, Discarded, OnDelta, TextDelta, ToolCallDelta

_log = logging.getLogger("flink_skills.model")

# The answers of servers that do not know streams, or one of their options.
_NO_STREAM = frozenset({400, 404, 405, 415, 422, 501})
# Bytes that are decoded on the event loop. A thread decodes more.
_MAX_ON_LOOP = 256 << 10
_MAX_STREAM = 64 << 20
_MAX_EVENTS = 1 << 18
_MAX_EVENT = 16 << 20
# Seconds in which the rest of an answer that is over arrives, such as its usage.
_REST = 5.0
# Bytes that a line needs in addition to its data.
_LINE = 8
# Bytes that are split into lines without a pause.
_SLICE = 16 << 10
# A model uses no streams after so many unreadable ones in sequence.
_MAX_UNREADABLE = 3
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# First characters of lines in a stream, and of a body.
_OF_STREAM, _OF_BODY = b"deir:", b'{["<'


class HttpModel(ChatModel):
    """Asks a model over a wire.

    Args:
        wire: The mapping to the JSON of the API.
        connections: The connections to it, for one or more base URLs.
        settings: The settings of each request.
        accepts: The kinds of media that the model accepts.
        key: The key, which may change.
        key_headers: Returns the headers with a key.
        schema_with_tools: Whether the API takes an output schema and tools in one request. Otherwise the schema goes
            into the system text.
    """

    def __init__(
        self,
        wire: Wire,
        connections: Sequence[Connection],
        *,
        circuits: Sequence[Circuit] = (),
        settings: Mapping[str, Any] | None = None,
        accepts: frozenset[str] = frozenset(),
        key: ApiKey | None = None,
        key_headers: Callable[[str], Mapping[str, str]] = lambda _: {},
        schema_with_tools: bool = True,
    ) -> None:
        self.name = wire.label
        self.accepts = accepts
        self.wire = wire
        self._connections = list(connections)
        self._replicas = Replicas(list(zip(connections, circuits, strict=True))) if len(connections) > 1 else None
        self._settings = dict(settings or {})
        self._key = key or ApiKey(None)
        self._sent_key, self._key_headers = self._key.value, key_headers
        self._schema_with_tools = schema_with_tools
        self._streams = True
        self._unreadable = 0
        # The settings of requests are the same object with each of them: what follows from them is computed once.
        self._of_request: Mapping[str, Any] | None = None
        self._merged: Mapping[str, Any] = self._settings
        self._headers: Mapping[str, str] | None = None

    def body(self, request: ModelRequest, *, stream: bool = False) -> bytes:
        """Return the bytes that are sent for ``request``."""
        return self.wire.body(self.placed(request), self._settings_of(request), stream=stream)

    def placed(self, request: ModelRequest) -> ModelRequest:
        """Return the request with its output schema in the place where the API takes it."""
        schema = request.output_schema
        if schema is None:
            return request
        native = self._schema_with_tools or not request.tools
        if native and self.wire.takes_schema(schema, self._settings_of(request)):
            return request
        return schema_in_text(request)

    async def request(self, request: ModelRequest) -> ModelResponse:
        omitted, key = self.wire.rejects_cache_keys, self._present_key()
        try:
            body = self.body(request)
            async with self._opened(request, body) as answer:
                response = await self._whole(answer, await read_bounded(answer))
        except Exception as error:
            if self._omits_cache_key(error, omitted=omitted) or self._key.is_renewed(status_of(error), key):
                return await self.request(request)
            raise self._explained(error, request) from error
        if response is None:
            raise self._broken_off()
        return response

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        """As :meth:`request`, with the answer while it arrives.

        A server that cannot stream is asked for the whole answer, and for no stream again. After a stream that cannot
        be read, the next attempt requests none.
        """
        if not self._streams or _without_stream.get() is self:
            _without_stream.set(None)
            return await super().stream(request, on_delta)
        forwarded, omitted, key = _ForwardedDeltas(on_delta), self.wire.rejects_cache_keys, self._present_key()
        try:
            response = await self._streamed(request, forwarded)
        except Exception as error:
            if self._omits_cache_key(error, omitted=omitted) or self._key.is_renewed(status_of(error), key):
                return await self.stream(request, on_delta)
            if isinstance(error, ValueError):
                self._avoid_stream()
            if forwarded.anything or not _is_about_streaming(error):
                raise self._explained(error, request) from error
            whole = await super().stream(request, on_delta)
            self._streams = False
            return whole
        if response is None:
            self._avoid_stream()
            raise self._broken_off()
        self._unreadable = 0
        forwarded.complete(response)
        return response

    async def _streamed(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse | None:
        body = self.body(request, stream=True)
        async with self._opened(request, body) as answer:
            blank = 0
            while (first := await answer.content.readany()) and not first.strip():
                blank = _checked_size(blank + len(first))
            if _is_stream(first, answer.content_type):
                return await self._folded(partial(_pieces, first, answer), answer.headers, on_delta)
            # The server ignores the wish for a stream.
            response = await self._whole(answer, await read_bounded(answer, begun=first))
            self._streams = False
            return response

    async def _whole(self, answer: aiohttp.ClientResponse, data: bytes) -> ModelResponse | None:
        """Return the response of a body. It may be a stream, although none was requested.

        Raises the error that the body declares, whatever the status is.
        """
        if not data.startswith(b"{") and _is_stream(data, ""):
            return await self._folded(lambda reader: _slices(data), answer.headers)
        if len(data) <= _MAX_ON_LOOP:
            found = self._read(answer, data)
        else:
            found = await asyncio.to_thread(self._read, answer, data)
        if found is not None:
            return found
        # Chunks in lines, without the form of events.
        lines = b"".join(b"data: %b\n\n" % line for line in data.splitlines())
        return await self._folded(lambda reader: _slices(lines), answer.headers)

    def _read(self, answer: aiohttp.ClientResponse, data: bytes) -> ModelResponse | None:
        """Return the response of a body that is not a stream. Return None for JSON in several lines."""
        try:
            body = decoded(data)
        except ValueError as error:
            if isinstance(error, json.JSONDecodeError) and error.msg.startswith("Extra data"):
                return None
            text = text_of(answer, data)
            # Pages and plain text have words. Broken JSON contains the model's.
            words = str(error) if text.lstrip()[:1] in ("{", "[") else error_content(text).words
            raise NoCompletionError(words or "the body is empty") from error
        if (found := failure(body, answer.headers)) is not None:
            raise found
        try:
            return self.wire.response(body)
        except NoCompletionError as error:
            if (of := error_content(body)).status:
                raise AnswerError(of.status, answer.headers, body, inside=True) from None
            raise NoCompletionError(f"{error}: {of.words}" if of.words else str(error)) from error

    async def _folded(
        self,
        pieces: Callable[[StreamReader], AsyncIterator[bytes]],
        headers: Mapping[str, str],
        on_delta: OnDelta | None = None,
    ) -> ModelResponse | None:
        """Return the response of a stream. Return None if the stream ended before the answer did."""
        reader = self.wire.reader()
        try:
            size = await _read_events(pieces(reader), headers, reader, on_delta or _ignore_delta)
        except AnswerError as error:
            error.counted = reader.counted
            raise
        return reader.response() if size <= _MAX_ON_LOOP else await asyncio.to_thread(reader.response)

    def _avoid_stream(self) -> None:
        _without_stream.set(self)
        self._unreadable += 1
        self._streams = self._unreadable < _MAX_UNREADABLE

    def _broken_off(self) -> ModelError:
        return ModelError(f"the answer of model {self.name} broke off before its end", retryable=True)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    def _opened(self, request: ModelRequest, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request to the server that serves its key."""
        headers = self._headers
        if request.affinity and (name := self._merged.get("session_header")):
            headers = {str(name): self.wire.session(request), **(headers or {})}
        if self._replicas is not None:
            return self._replicas.opened(request, body, headers)
        return self._connections[0].opened(body, request.timeout, headers)

    def _present_key(self) -> str:
        """Return the key, and change the headers of requests if it is another one than before."""
        key = self._key.value
        if key != self._sent_key:
            _log.info("chat model %s uses another API key from now on", self.name)
            for connection in self._connections:
                connection.headers.update(self._key_headers(key))
            self._sent_key = key
        return key

    def _omits_cache_key(self, error: Exception, *, omitted: bool) -> bool:
        """Return True if a request failed because of its cache key. Further requests omit it.

        ``omitted`` says that the request had none.
        """
        if omitted or not isinstance(error, AnswerError) or error.status_code not in (400, 422):
            return False
        if "prompt_cache_key" not in error_content(error.body).words:
            return False
        if self.wire.rejects_cache_keys:
            return True
        self.wire.rejects_cache_keys = True
        _log.warning(
            "chat model %s rejects prompt_cache_key, so requests omit it. Set cache_key: false in its setup.",
            self.name,
        )
        return True

    def _settings_of(self, request: ModelRequest) -> Mapping[str, Any]:
        if request.settings is not self._of_request:
            self._of_request = request.settings
            self._merged = {**self._settings, **request.settings}
            self._headers = self.wire.headers(self._merged) or None
        return self._merged

    def _explained(self, error: Exception, request: ModelRequest) -> ModelError:
        explained = explain(
            error,
            model=self.name,
            place=getattr(error, "address", self._connections[0].address).removesuffix(self.wire.path),
            timeout=request.timeout,
            api_key=self._key,
        )
        if isinstance(error, AnswerError):
            stated = {**error.counted, **object_of(object_of(error.body).get("usage"))}
            explained.usage = self.wire.usage(stated) if stated else None
        return explained


# The model whose stream the last attempt in this task could not read.
_without_stream: contextvars.ContextVar[HttpModel | None] = contextvars.ContextVar(
    "flink_skills_without_stream", default=None
)


class _ForwardedDeltas:
    """Hands pieces on, and remembers what they add up to."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._texts: list[str] = []
        self._calls: dict[int, tuple[str, str]] = {}

    def __call__(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._texts.append(delta.text)
        elif isinstance(delta, ToolCallDelta):
            self._calls[delta.index] = (delta.call_id, delta.name)
        self._on_delta(delta)

    @property
    def anything(self) -> bool:
        """Return True if there were any pieces."""
        return bool(self._texts or self._calls)

    def complete(self, response: ModelResponse) -> None:
        """Hand on what ``response`` has in addition. If the pieces do not fit it, take them back."""
        text = "".join(self._texts)
        calls = {number: (call.id, call.name) for number, call in enumerate(response.tool_calls)}
        if not response.text.startswith(text) or (self._calls and self._calls != calls):
            # The pieces did not show which call they belonged to, for instance.
            self._on_delta(Discarded())
            emit_response(response, self._on_delta)
            return
        if len(text) < len(response.text):
            self._on_delta(TextDelta(response.text[len(text) :]))
        if not self._calls:
            emit_calls(response.tool_calls, self._on_delta)


class EventData:
    """Finds the data of the events in the pieces of a stream. Ids and comments of events are ignored.

    The format is that of https://html.spec.whatwg.org/multipage/server-sent-events.html.

    >>> events = EventData()
    >>> list(events.feed(b"data: one\\n\\nda")), list(events.feed(b"ta: two\\r\\n\\r\\n"))
    ([b'one'], [b'two'])
    """

    def __init__(self) -> None:
        # The start of a line. It is searched once, because the pieces may be a byte each.
        self._begun = bytearray()
        self._lines: list[bytes] = []
        self._size = 0
        self._next_name = b""
        self._is_first = True
        #: The name of the event that :meth:`feed` returned last.
        self.name = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Return the data of the events that ``piece`` ends. Raises :class:`ValueError` for an event above 16 MiB."""
        if not (b"\n" in piece or b"\r" in piece or self._begun.endswith(b"\r")):
            self._begun += piece
            self._check_size()
            return
        text = bytes(self._begun) + piece
        # A CR at the end may be the first half of a line end.
        carry = b"\r" if text.endswith(b"\r") else b""
        complete = text.removesuffix(carry).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = complete.split(b"\n")
        self._begun = bytearray(lines.pop() + carry)
        for line in lines:
            if (data := self._line(line)) is not None:
                yield data
        self._check_size()

    def end(self) -> Iterator[bytes]:
        """Return the data of an event that the stream did not end."""
        lines = (bytes(self._begun).rstrip(b"\r"), b"")
        self._begun = bytearray()
        for line in lines:
            if (data := self._line(line)) is not None:
                yield data

    def _check_size(self) -> None:
        if self._size + len(self._begun) > _MAX_EVENT:
            raise ValueError(f"an event of the stream has more than {_MAX_EVENT:,} bytes")

    def _line(self, line: bytes) -> bytes | None:
        """Take one line. Return the data of the event that it ends, if it ends one."""
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            self.name, self._next_name = self._next_name, b""
            if not self._lines:
                return None
            data = b"\n".join(self._lines)
            self._lines, self._size = [], 0
            return data
        name, _, value = line.partition(b":")
        if name == b"data":
            self._lines.append(value.removeprefix(b" "))
            self._size += len(value) + _LINE
        elif name == b"event":
            self._next_name = value.removeprefix(b" ")
        elif name == b"error" and value.strip():
            # llama.cpp
            self._lines.append(value)
            self._next_name = name
        return None


def _is_stream(data: bytes, content_type: str) -> bool:
    """Return True if an answer is a stream. Some servers send a stream or a body with the type of the other."""
    start = data[:_SLICE].removeprefix(_BYTE_ORDER_MARK).lstrip()[:1]
    if content_type == "text/event-stream":
        return not start or start not in _OF_BODY
    return bool(start) and start in _OF_STREAM


async def _pieces(first: bytes, answer: aiohttp.ClientResponse, reader: StreamReader) -> AsyncIterator[bytes]:
    """Yield the bytes of a stream. Raises :class:`ValueError` for more than 64 MiB.

    An answer that is over does not depend on how its server closes the stream.
    """
    size, piece = 0, first
    while piece:
        size = _checked_size(size + len(piece))
        async for part in _slices(piece):
            yield part
        try:
            piece = await asyncio.wait_for(answer.content.readany(), _REST if reader.is_over else None)
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError):
            if not reader.is_over:
                raise
            return


def _checked_size(size: int) -> int:
    if size > _MAX_STREAM:
        raise ValueError(f"the stream has more than {_MAX_STREAM:,} bytes")
    return size


async def _slices(data: bytes) -> AsyncIterator[bytes]:
    """Yield the bytes in slices, between which other turns run."""
    for at in range(0, len(data), _SLICE):
        if at:
            await asyncio.sleep(0)
        yield data[at : at + _SLICE]


async def _read_events(
    pieces: AsyncIterator[bytes], headers: Mapping[str, str], reader: StreamReader, on_delta: OnDelta
) -> int:
    """Pass the events of a stream to the reader, and return the number of its bytes."""
    events, number, size = EventData(), 0, 0
    async for piece in pieces:
        size += len(piece)
        for data in events.feed(piece):
            number += 1
            if number > _MAX_EVENTS:
                raise ValueError(f"the stream has more than {_MAX_EVENTS:,} events")
            if data.strip() == b"[DONE]":
                return size
            large = len(data) > _MAX_ON_LOOP
            of = (data, events.name, headers)
            reader.event(await asyncio.to_thread(_event, *of) if large else _event(*of), on_delta)
            # Lets listeners take the piece, and other turns run during a burst of events.
            await asyncio.sleep(0)
    for data in events.end():
        reader.event(_event(data, events.name, headers), on_delta)
    return size


def _event(data: bytes, name: bytes, headers: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the object of an event. Text that is not JSON is not a part of an answer.

    Raises :class:`AnswerError` for an error.
    """
    event: Any = {}
    if data.startswith(b"{") or data.lstrip().startswith(b"{"):
        event = decoded(data)
    elif data.startswith(b'[{"error"'):
        # Gemini's form of an error.
        event = decoded(data)
    elif name == b"error":
        event = data.decode(errors="replace")
    if name == b"error" and not (isinstance(event, dict) and "error" in event):
        event = {"error": event}
    if (found := failure(event, headers)) is not None:
        raise found
    return object_of(event)


def _ignore_delta(delta: Delta) -> None:
    """Ignore a piece."""


def _is_about_streaming(error: Exception) -> bool:
    """Return whether a request may have failed because it asked for a stream."""
    if isinstance(error, AnswerError):
        return error.status_code in _NO_STREAM
    return isinstance(error, NoCompletionError)
