"""A chat model that this package asks over HTTP itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp

from flink_skills.agents.models.base import ChatModel, OnQuota, tell_whole
from flink_skills.agents.models.circuit import Circuit
from flink_skills.agents.models.client_errors import explain
from flink_skills.agents.models.error_bodies import AnswerError, failure, said
from flink_skills.agents.models.schemas import schema_in_text
from flink_skills.agents.models.wires.connection import Connection, Replicas, read_bounded, text_of
from flink_skills.agents.models.wires.events import EventData
from flink_skills.agents.models.wires.json_bytes import decoded, object_of
from flink_skills.agents.models.wires.wire import NoCompletionError, StreamReader, Wire
from flink_skills.agents.state.messages import ModelRequest, ModelResponse
from flink_skills.errors import ModelError
from flink_skills.telemetry import OnDelta

__all__ = ["HttpModel"]

_log = logging.getLogger("flink_skills.model")

# The answers of servers that do not know streams, or one of their options.
_NO_STREAM = frozenset({400, 404, 405, 415, 422, 501})


class HttpModel(ChatModel):
    """Asks a model over a wire.

    Args:
        wire: The mapping to the JSON of the API.
        connections: The connections to it, for one or more base URLs.
        settings: The settings of each request.
        accepts: The kinds of media that the model accepts.
        key_variable: The environment variable of the key, for messages of errors.
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
        key_variable: str | None = None,
        schema_with_tools: bool = True,
    ) -> None:
        self.name = wire.label
        self.accepts = accepts
        self.wire = wire
        self._connections = list(connections)
        self._replicas = Replicas(list(zip(connections, circuits, strict=True))) if len(connections) > 1 else None
        self._settings = dict(settings or {})
        self._key_variable = key_variable
        self._schema_with_tools = schema_with_tools
        self._streams = True
        # The settings of requests are the same object with each of them: what follows from them is computed once.
        self._of_request: Mapping[str, Any] | None = None
        self._merged: Mapping[str, Any] = self._settings
        self._headers: Mapping[str, str] | None = None

    @property
    def on_quota(self) -> OnQuota | None:
        """The listener of the connections."""
        return self._connections[0].on_answer

    @on_quota.setter
    def on_quota(self, on_quota: OnQuota | None) -> None:
        for connection in self._connections:
            connection.on_answer = on_quota

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
        omitted = self.wire.rejects_cache_keys
        try:
            body = self.body(request)
            async with self._opened(request, body) as answer:
                return await self._whole(answer)
        except Exception as error:
            if self._omits_cache_key(error, omitted=omitted):
                return await self.request(request)
            raise self._explained(error, request) from error

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        """As :meth:`request`, with the answer while it arrives.

        A server that cannot stream is asked for the whole answer, and for no stream again.
        """
        if not self._streams:
            return await super().stream(request, on_delta)
        told, omitted = False, self.wire.rejects_cache_keys

        def tell(delta: Any) -> None:
            nonlocal told
            told = True
            on_delta(delta)

        try:
            response = await self._streamed(request, tell)
        except Exception as error:
            if self._omits_cache_key(error, omitted=omitted):
                return await self.stream(request, on_delta)
            if told or not _is_about_streaming(error):
                raise self._explained(error, request) from error
            whole = await super().stream(request, on_delta)
            self._streams = False
            return whole
        if response is None:
            # Or a server that never ends a stream as the API says: the next attempt uses no stream.
            self._streams = False
            raise ModelError(f"the answer of model {self.name} broke off before its end", retryable=True)
        return response

    async def _streamed(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse | None:
        body = self.body(request, stream=True)
        async with self._opened(request, body) as answer:
            if answer.content_type == "application/json":
                # The server ignores the wish for a stream.
                response = await self._whole(answer)
                self._streams = False
                tell_whole(response, on_delta)
                return response
            reader = self.wire.reader()
            await _read_events(answer, reader, on_delta)
            return reader.response()

    async def _whole(self, answer: aiohttp.ClientResponse) -> ModelResponse:
        """Return the response in a body. Raises the error that the body declares, whatever the status is."""
        data = await read_bounded(answer)
        try:
            body = decoded(data)
        except ValueError as error:
            text = text_of(answer, data)
            # Pages and plain text have words. Broken JSON contains the model's.
            words = str(error) if text.lstrip()[:1] in ("{", "[") else said(text).words
            raise NoCompletionError(words or "the body is empty") from error
        if (found := failure(body, answer.headers)) is not None:
            raise found
        try:
            return self.wire.response(body)
        except NoCompletionError as error:
            if (of := said(body)).status:
                raise AnswerError(of.status, answer.headers, body, inside=True) from None
            raise NoCompletionError(f"{error}: {of.words}" if of.words else str(error)) from error

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

    def _omits_cache_key(self, error: Exception, *, omitted: bool) -> bool:
        """Return True if a request failed because of its cache key. Further requests omit it.

        ``omitted`` says that the request had none.
        """
        if omitted or not isinstance(error, AnswerError) or error.status_code not in (400, 422):
            return False
        if "prompt_cache_key" not in said(error.body).words:
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
        return explain(
            error,
            model=self.name,
            place=getattr(error, "address", self._connections[0].address).removesuffix(self.wire.path),
            timeout=request.timeout,
            key_variable=self._key_variable,
            on_quota=self.on_quota,
        )


async def _read_events(answer: aiohttp.ClientResponse, reader: StreamReader, on_delta: OnDelta) -> None:
    events = EventData()
    while piece := await answer.content.readany():
        for data in events.feed(piece):
            if data == b"[DONE]":
                return
            event = decoded(data)
            if (found := failure(event, answer.headers)) is not None:
                raise found
            reader.event(object_of(event), on_delta)
            # Lets listeners take the piece, and other turns run during a burst of events.
            await asyncio.sleep(0)


def _is_about_streaming(error: Exception) -> bool:
    """Return whether a request may have failed because it asked for a stream."""
    if isinstance(error, AnswerError):
        return error.status_code in _NO_STREAM
    return isinstance(error, NoCompletionError)
