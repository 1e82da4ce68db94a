"""A chat model that this package asks over HTTP itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from flink_skills.agents.models.base import ChatModel, OnQuota, tell_whole
from flink_skills.agents.models.client_errors import explain
from flink_skills.agents.models.schemas import schema_in_text
from flink_skills.agents.models.wires.connection import AnswerError, Connection, read_bounded
from flink_skills.agents.models.wires.error_names import status_of
from flink_skills.agents.models.wires.events import EventData
from flink_skills.agents.models.wires.json_bytes import decoded, object_of
from flink_skills.agents.models.wires.wire import NoCompletionError, StreamReader, Wire
from flink_skills.agents.state.messages import ModelRequest, ModelResponse
from flink_skills.errors import ModelError
from flink_skills.telemetry import OnDelta

__all__ = ["HttpModel"]

# The answers of servers that do not know streams, or one of their options.
_NO_STREAM = frozenset({400, 404, 405, 415, 422, 501})


class HttpModel(ChatModel):
    """Asks a model over a wire.

    Args:
        wire: The mapping to the JSON of the API.
        connection: The connections to it.
        settings: The settings of each request.
        accepts: The kinds of media that the model accepts.
        key_variable: The environment variable of the key, for messages of errors.
        schema_with_tools: Whether the API takes an output schema and tools in one request. Otherwise the schema goes
            into the system text.
    """

    def __init__(
        self,
        wire: Wire,
        connection: Connection,
        *,
        settings: Mapping[str, Any] | None = None,
        accepts: frozenset[str] = frozenset(),
        key_variable: str | None = None,
        schema_with_tools: bool = True,
    ) -> None:
        self.name = wire.label
        self.accepts = accepts
        self.wire = wire
        self._connection = connection
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
        """The listener of the connection."""
        return self._connection.on_answer

    @on_quota.setter
    def on_quota(self, on_quota: OnQuota | None) -> None:
        self._connection.on_answer = on_quota

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
        try:
            body = self.body(request)
            return self.wire.response(decoded(await self._connection.post(body, request.timeout, self._headers)))
        except Exception as error:
            raise self._explained(error, request) from error

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        """As :meth:`request`, with the answer while it arrives.

        A server that cannot stream is asked for the whole answer, and for no stream again.
        """
        if not self._streams:
            return await super().stream(request, on_delta)
        told = False

        def tell(delta: Any) -> None:
            nonlocal told
            told = True
            on_delta(delta)

        try:
            response = await self._streamed(request, tell)
        except Exception as error:
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
        async with self._connection.opened(body, request.timeout, self._headers) as answer:
            if answer.content_type == "application/json":
                # The server ignores the wish for a stream.
                response = self.wire.response(decoded(await read_bounded(answer)))
                self._streams = False
                tell_whole(response, on_delta)
                return response
            reader = self.wire.reader()
            await _read_events(answer, reader, on_delta)
            return reader.response()

    async def close(self) -> None:
        await self._connection.close()

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
            place=self._connection.address.removesuffix(self.wire.path),
            timeout=request.timeout,
            key_variable=self._key_variable,
        )


async def _read_events(answer: aiohttp.ClientResponse, reader: StreamReader, on_delta: OnDelta) -> None:
    events = EventData()
    while piece := await answer.content.readany():
        for data in events.feed(piece):
            if data == b"[DONE]":
                return
            event = object_of(decoded(data))
            error = object_of(event.get("error"))
            if error:
                raise AnswerError(status_of(error), {}, event, str(error.get("message", "")))
            reader.event(event, on_delta)
            # Lets listeners take the piece, and other turns run during a burst of events.
            await asyncio.sleep(0)


def _is_about_streaming(error: Exception) -> bool:
    """Return whether a request may have failed because it asked for a stream."""
    if isinstance(error, AnswerError):
        return error.status_code in _NO_STREAM
    return isinstance(error, NoCompletionError)
