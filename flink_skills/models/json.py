"""The strategy ``json``: a model that cannot call tools writes its next action as constrained JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flink_skills.models.actions import ANSWER, Action, action_schema, all_actions, allowed_actions
from flink_skills.models.base import tell_whole
from flink_skills.models.endings import AnswerEnd, end_of
from flink_skills.models.messages import ModelRequest, ModelResponse, ToolCall
from flink_skills.models.native import calls_in_text
from flink_skills.models.results import empty_answer
from flink_skills.models.transcript import render_messages, render_system
from flink_skills.models.wrapped import WrappedModel, answered
from flink_skills.telemetry import Delta, Discarded, OnDelta, TextDelta
from flink_skills.tools.arguments import model_json

__all__ = ["INVALID", "AnswerText", "JsonActions"]

INVALID = "invalid"
_ACTION = re.compile(r'"action"\s*:\s*"([^"\\]{1,200})"')

_BEGINNING = re.compile(
    r'\s*\{\s*(?:"next"\s*:\s*\{\s*)?"action"\s*:\s*"answer"\s*,\s*"arguments"\s*:\s*\{\s*"content"\s*:\s*"'
)
# Maximum characters before the content of an answer.
_MAX_BEGINNING = 400
# An escape at the end of a piece that the next piece may continue: \, \u12, or the first half of a pair.
_OPEN_ESCAPE = re.compile(
    r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)\Z"
)
_END = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class JsonActions(WrappedModel):
    """Lets any model act that can write JSON by a schema (``response_format``), also a small local one.

    The wrapped model never hears of tools: it gets the conversation as plain text and a schema of the
    actions that are allowed in the present state, and each response is one action.

    A response that is no allowed action (a server that ignores the schema) has ``finish_reason`` ``"invalid"`` and a
    ``text`` that tells the model what was wrong, so that the turn loop can show it to the model and ask again. It is no
    error: the model made the mistake. A response that is not complete keeps its reason, with the text of the answer or
    the call that it began with.
    """

    def sent(self, request: ModelRequest) -> ModelRequest:
        """Return the request that the wrapped model receives for ``request``."""
        return _as_action_request(request, allowed_actions(request))

    async def request(self, request: ModelRequest) -> ModelResponse:
        actions = allowed_actions(request)
        response = answered(await self.model.request(_as_action_request(request, actions)))
        return _interpret(response, request, actions)

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        """As :meth:`request`; an answer that is text is handed on while it arrives, anything else when it is whole."""
        actions = allowed_actions(request)
        if request.output_schema is not None:
            return await super().stream(request, on_delta)
        told = _ToldAnswer(on_delta)
        response = _interpret(await self.ask_streaming(_as_action_request(request, actions), told), request, actions)
        if response.finish_reason == INVALID or response.tool_calls or response.text != told.text:
            told.withdraw()
            if response.finish_reason != INVALID:
                tell_whole(response, on_delta)
        return response


class AnswerText:
    r"""Reader of the answer in the pieces of ``{"next": {"action": "answer", "arguments": {"content": "…"}}}``.

    The fields must have this order, in which models write them under the schema. Other content, such as tool calls,
    gives no text. Each piece is read one time.

    >>> answer = AnswerText()
    >>> answer.feed('{"action": "answer", "arguments": {"content": "one\\'), answer.feed('n'), answer.feed('two"}}')
    ('one', '\n', 'two')
    """

    def __init__(self) -> None:
        self._waiting = ""
        self._begun = False
        self._over = False

    def feed(self, piece: str) -> str:
        """Return what ``piece`` adds to the answer."""
        if self._over:
            return ""
        self._waiting += piece
        if not self._begun:
            found = _BEGINNING.match(self._waiting)
            if found is None:
                self._over = len(self._waiting) > _MAX_BEGINNING
                return ""
            self._begun = True
            self._waiting = self._waiting[found.end() :]
        return self._decoded()

    def _decoded(self) -> str:
        end = _END.match(self._waiting)
        if end is not None:
            written, self._waiting, self._over = end[0][:-1], "", True
        else:
            open_ = _OPEN_ESCAPE.search(self._waiting)
            cut = open_.start(1) if open_ else len(self._waiting)
            written, self._waiting = self._waiting[:cut], self._waiting[cut:]
        try:
            return str(json.loads(f'"{written}"', strict=False))
        except ValueError:  # a server that does not hold the model to JSON: its end tells what is wrong
            self._over = True
            return ""


class _ToldAnswer:
    """Hands on the answer in what the model writes."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._answer = AnswerText()
        self._told: list[str] = []

    @property
    def text(self) -> str:
        """What was handed on."""
        return "".join(self._told)

    def __call__(self, delta: Delta) -> None:
        if isinstance(delta, Discarded):
            self._answer = AnswerText()
            self.withdraw()
        elif isinstance(delta, TextDelta) and (found := self._answer.feed(delta.text)):
            self._told.append(found)
            self._on_delta(TextDelta(found))

    def withdraw(self) -> None:
        """Take back what was handed on, if anything was."""
        if self._told:
            self._told = []
            self._on_delta(Discarded())


def _as_action_request(request: ModelRequest, actions: Sequence[Action]) -> ModelRequest:
    """The request for the wrapped model."""
    return replace(
        request,
        system=render_system(request.system, all_actions(request)),
        messages=render_messages(request.messages, actions),
        tools=(),
        output_schema=action_schema(actions),
        # The system text has all actions, and so is the same with each request; this schema is not.
        describes_schema=True,
    )


def _interpret(response: ModelResponse, request: ModelRequest, actions: Sequence[Action]) -> ModelResponse:
    # The turn keeps the action instead of its JSON text, so the wrapped model gets the message in another form.
    response = replace(response, verbatim=None)
    names = [action.name for action in actions]
    if end_of(response.finish_reason) is not AnswerEnd.COMPLETE:
        return _incomplete(response, request, names)
    try:
        written = model_json(response.text, strict=False)
    except ValueError as error:
        calls = calls_in_text(response.text, set(names) - {ANSWER}, position=len(request.messages))
        if calls:
            return replace(response, text="", tool_calls=calls[:1], finish_reason="tool_calls")
        if not response.text.strip():
            return _invalid(response, f"The reply was {empty_answer(response)}", names)
        return _invalid(response, f"The reply is not valid JSON ({error})", names)
    step = written.get("next", written) if isinstance(written, dict) else None
    name = step.get("action") if isinstance(step, dict) else None
    if not isinstance(step, dict) or not isinstance(name, str):
        return _invalid(response, "The reply does not name an action", names)
    if name not in names:
        return _invalid(response, f"The action {name!r} is not allowed now", names)
    arguments = step.get("arguments")
    if not isinstance(arguments, dict):
        return _invalid(response, f"The action {name!r} has no arguments", names)
    if name != ANSWER:
        call = ToolCall(id=f"json-{len(request.messages)}", name=name, arguments=arguments)
        return replace(response, text="", tool_calls=(call,), finish_reason="tool_calls")
    return replace(
        response, text=_content(arguments, request.output_schema is None), tool_calls=(), finish_reason="stop"
    )


def _incomplete(response: ModelResponse, request: ModelRequest, names: Sequence[str]) -> ModelResponse:
    """Return the answer or the call that an incomplete response began with. It may have no name yet."""
    end, named = end_of(response.finish_reason), _ACTION.search(response.text)
    if end is AnswerEnd.FILTERED and named is None:
        return response
    name = named[1] if named is not None and named[1] in names else ""
    # The conversation that the model reads cannot continue one of its messages.
    reason = AnswerEnd.CUT.value if end is AnswerEnd.PAUSED else response.finish_reason
    if name == ANSWER:
        text = AnswerText().feed(response.text) if request.output_schema is None else ""
        return replace(response, text=text, tool_calls=(), finish_reason=reason)
    written = response.text[named.end() :] if named is not None and name else response.text
    call = ToolCall(id=f"json-{len(request.messages)}", name=name, arguments=written)
    return replace(response, text="", tool_calls=(call,), finish_reason=reason)


def _content(arguments: dict[str, Any], plain: bool) -> str:
    content = arguments.get("content", "")
    return content if plain and isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _invalid(response: ModelResponse, problem: str, names: Sequence[str]) -> ModelResponse:
    text = (
        f"{problem}. Reply with exactly one JSON action and nothing else: "
        f'{{"next": {{"action": NAME, "arguments": {{…}}}}}}, where NAME is one of {", ".join(names)}.'
    )
    return replace(response, text=text, tool_calls=(), finish_reason=INVALID)
