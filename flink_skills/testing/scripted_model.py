"""A chat model inside the process that answers by script."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from flink_skills.errors import counted
from flink_skills.hints import none_is_default
from flink_skills.models.base import ChatModel
from flink_skills.models.messages import ModelRequest, ModelResponse, ToolCall, Usage

Answer = str | ModelResponse | BaseException
"""A text, a whole response, or an error to raise (such as a ``ModelError``)."""


@none_is_default
class ScriptedModel(ChatModel):
    """A chat model that answers from a list, one item per request, or by a function of the request.

    ``requests`` holds every request, also those that failed. With a list, a request beyond its end is an
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
    """A tool call without an id of its own; :func:`calls` gives it one."""
    return ToolCall(id="", name=name, arguments=arguments)


def calls(*wanted: ToolCall, text: str = "", prefix: str = "call") -> ModelResponse:
    """A response that asks for tool calls, all at once. ``prefix`` begins the ids, which end in 1, 2 …

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
