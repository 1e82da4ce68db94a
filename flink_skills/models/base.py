"""The plug-in point for chat models: one small base class."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import ClassVar

from flink_skills.models.messages import ModelRequest, ModelResponse, ToolCall
from flink_skills.models.well_formed import well_formed_calls
from flink_skills.resource import Resource
from flink_skills.telemetry import OnDelta, TextDelta, ToolCallDelta


class ChatModel(Resource, ABC):
    """A chat model: a request goes in, text and tool calls come out.

    One instance serves all turns of a worker at once, so it keeps nothing about a conversation: a
    request carries everything. It is used on one event loop.

        class Echo(ChatModel):
            name = "echo"

            async def request(self, request: ModelRequest) -> ModelResponse:
                return ModelResponse(text=request.messages[-1].content)
    """

    resource_type: ClassVar[str] = "chat_model_connection"

    name: str
    """What logs, metrics and errors call the model, such as ``openai:gpt-x``. Holds no secret."""

    accepts: frozenset[str] = frozenset()
    """The kinds of media that the model accepts in messages: ``image``, ``pdf`` and ``audio``. A request contains no
    others."""

    @abstractmethod
    async def request(self, request: ModelRequest) -> ModelResponse:
        """Ask the model once.

        Never tries again by itself: the turn loop does, and counts. The only error that leaves is
        :class:`~flink_skills.errors.ModelError`, ``retryable`` where the same request may succeed later
        (408, 409, 429, 5xx, broken connections, timeouts). What the *model* did wrong, such as a call of a
        tool that does not exist, is no error but part of the response. Cancelling must end the request.
        """

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        """Ask the model once, and hand on its answer while it arrives. The response is that of :meth:`request`.

        The pieces that ``on_delta`` gets, put together, are the text and the tool calls of the response; what it was
        given too early is taken back with :class:`~flink_skills.telemetry.Discarded`. When an error leaves, nothing of
        what was given counts, and nobody has to say so. A model that does not override this gives its answer in one
        piece.
        """
        response = await self.request(request)
        emit_response(response, on_delta)
        return response

    async def close(self) -> None:
        """Release connections. Called once, when no request is under way; may be called again."""
        return


def emit_response(response: ModelResponse, on_delta: OnDelta) -> None:
    """Hand on a whole response as its pieces: one of text, and one for each tool call."""
    if response.text:
        on_delta(TextDelta(response.text))
    emit_calls(response.tool_calls, on_delta)


def emit_calls(calls: tuple[ToolCall, ...], on_delta: OnDelta) -> None:
    """Hand on whole tool calls, a piece for each."""
    for index, call in enumerate(well_formed_calls(calls)):
        arguments = call.arguments
        written = arguments if isinstance(arguments, str) else json.dumps(dict(arguments), ensure_ascii=False)
        on_delta(ToolCallDelta(call.id, call.name, written, index))
