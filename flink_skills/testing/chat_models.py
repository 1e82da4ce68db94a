"""A chat model inside the process that answers by script, and what every chat model must do, as tests to inherit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from flink_skills.errors import counted
from flink_skills.hints import none_is_default
from flink_skills.models.base import ChatModel
from flink_skills.models.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from flink_skills.telemetry import Delta, Discarded, TextDelta, ToolCallDelta
from flink_skills.tools.base import ToolSpec

_TOOL = ToolSpec(
    "lookup",
    "Look something up.",
    {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
)
_AT_ONCE = 20

Answer = str | ModelResponse | BaseException
"""Text, a whole response, or an error to raise (such as a ``ModelError``)."""


@none_is_default
class ScriptedModel(ChatModel):
    """A chat model that answers from a list, one item per request, or by a function of the request.

    ``requests`` holds every request, including those that failed. With a list, a request beyond its end is an
    ``AssertionError``: a test that asks more often than it says is wrong. ``accepts`` are the kinds of media that it
    receives.

        model = ScriptedModel([calls(call("load_skill", name="x")), "done"])
        model = ScriptedModel(lambda request: request.messages[-1].content.upper())
    """

    def __init__(
        self,
        script: Iterable[Answer] | Callable[[ModelRequest], Answer | Awaitable[Answer]],
        *,
        name: str = "scripted",
        accepts: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.accepts = frozenset(accepts)
        self.requests: list[ModelRequest] = []
        self.closed = False
        self._script = script if callable(script) else None
        self._answers = [] if callable(script) else list(script)

    async def request(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        if self._script is not None:
            outcome = self._script(request)
            answer = await outcome if inspect.isawaitable(outcome) else outcome
        else:
            position = len(self.requests) - 1
            if position >= len(self._answers):
                raise AssertionError(
                    f"scripted model {self.name!r} has {counted(len(self._answers), 'answer')} and was asked "
                    f"for number {position + 1}: {request.messages[-1]}"
                )
            answer = self._answers[position]
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            return ModelResponse(answer, (), Usage(requests=1), "stop")
        return answer

    async def close(self) -> None:
        self.closed = True


def call(name: str, /, **arguments: Any) -> ToolCall:
    """Return a tool call without an id. :func:`calls` sets its id."""
    return ToolCall(id="", name=name, arguments=arguments)


def calls(*wanted: ToolCall, text: str = "", prefix: str = "call") -> ModelResponse:
    """Return a response with parallel tool calls. Their ids are ``prefix`` and a number from 1.

    >>> calls(call("load_skill", name="x")).tool_calls[0].id
    'call-1'
    """
    numbered = tuple(
        ToolCall(id=c.id or f"{prefix}-{n}", name=c.name, arguments=_plain(c.arguments))
        for n, c in enumerate(wanted, 1)
    )
    return ModelResponse(text, numbered, Usage(requests=1), "tool_calls")


def _plain(arguments: Mapping[str, Any] | str) -> Mapping[str, Any] | str:
    return arguments if isinstance(arguments, str) else dict(arguments)


class ChatModelContract:
    """Inherit from this in a test module and say how to make the model; pytest finds the tests.

    The model must answer any request, so point it at a fake of its provider, such as
    :class:`~flink_skills.testing.ScriptedModelServer`.

        class TestMyModel(ChatModelContract):
            def create(self) -> ChatModel:
                return MyModel(base_url=server.url)
    """

    def create(self) -> ChatModel:
        """Make a new model. Called inside a running event loop."""
        raise NotImplementedError("say how to make the model")

    def test_it_has_a_name(self) -> None:
        async def check() -> None:
            model = self.create()
            await model.close()
            assert model.name.strip(), "name is empty: logs and errors need it"

        asyncio.run(check())

    def test_it_answers_a_question(self) -> None:
        _check_response(self._ask(UserMessage("hello")))

    def test_it_takes_a_conversation_with_tools(self) -> None:
        calls = (ToolCall("call-1", "lookup", {"key": "a"}), ToolCall("call-2", "lookup", "no JSON"))
        response = self._ask(
            UserMessage("hello"),
            AssistantMessage("", calls),
            ToolMessage("call-1", "lookup", "found"),
            ToolMessage("call-2", "lookup", "the arguments were not JSON", is_error=True),
            AssistantMessage("done"),
            UserMessage("and now?"),
        )
        _check_response(response)

    def test_it_serves_many_turns_at_once(self) -> None:
        async def check() -> None:
            model = self.create()
            try:
                asked = [model.request(_request(UserMessage(f"hello {n}"))) for n in range(_AT_ONCE)]
                for response in await asyncio.gather(*asked):
                    _check_response(response)
            finally:
                await model.close()

        asyncio.run(check())

    def test_the_pieces_of_a_stream_add_up_to_its_response(self) -> None:
        async def check() -> None:
            model = self.create()
            pieces: list[Delta] = []
            try:
                response = await model.stream(_request(UserMessage("hello")), pieces.append)
            finally:
                await model.close()
            _check_response(response)
            discarded = [at for at, piece in enumerate(pieces) if isinstance(piece, Discarded)]
            counting = pieces[discarded[-1] + 1 :] if discarded else pieces
            text = "".join(piece.text for piece in counting if isinstance(piece, TextDelta))
            called = {piece.call_id for piece in counting if isinstance(piece, ToolCallDelta)}
            # A response that is no answer says what was wrong with it; the model said no such thing.
            assert text == ("" if response.finish_reason == "invalid" else response.text)
            assert called == {call.id for call in response.tool_calls}

        asyncio.run(check())

    def test_closing_twice_is_harmless(self) -> None:
        async def check() -> None:
            model = self.create()
            await model.request(_request(UserMessage("hello")))
            await model.close()
            await model.close()

        asyncio.run(check())

    def _ask(self, *messages: Message) -> ModelResponse:
        async def ask() -> ModelResponse:
            model = self.create()
            try:
                return await model.request(_request(*messages))
            finally:
                await model.close()

        return asyncio.run(ask())


def _request(*messages: Message) -> ModelRequest:
    return ModelRequest("Be brief.", messages, (_TOOL,), timeout=30)


def _check_response(response: ModelResponse) -> None:
    assert isinstance(response, ModelResponse)
    assert response.usage.requests >= 1, "every response counts at least one request"
    ids = [call.id for call in response.tool_calls]
    assert all(ids), "every tool call needs an id"
    assert len(set(ids)) == len(ids), f"ids of tool calls must differ: {ids}"
