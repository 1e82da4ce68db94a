"""The strategy ``json``: a model that cannot call tools writes its next action as constrained JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flink_skills.manager.menu import escape
from flink_skills.models.actions import (
    ANSWER,
    THOUGHT,
    Action,
    action_schema,
    all_actions,
    allowed_actions,
    failed_command,
    gave_nothing,
)
from flink_skills.models.base import emit_response
from flink_skills.models.endings import AnswerEnd, end_of
from flink_skills.models.messages import (
    AssistantMessage,
    Media,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from flink_skills.models.native import calls_in_text
from flink_skills.models.results import empty_answer
from flink_skills.models.wrapped import WrappedModel, answered
from flink_skills.skill.text import clean_line
from flink_skills.telemetry import Delta, Discarded, OnDelta, TextDelta
from flink_skills.tools.arguments import model_json
from flink_skills.tools.base import says_repeated

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
        """Return the response as :meth:`request` does.

        The text of an answer is forwarded while it arrives. Everything else is forwarded when it is complete.
        """
        actions = allowed_actions(request)
        if request.output_schema is not None:
            return await super().stream(request, on_delta)
        forwarded = _ForwardedAnswer(on_delta)
        response = _interpret(
            await self.ask_streaming(_as_action_request(request, actions), forwarded), request, actions
        )
        if response.finish_reason == INVALID or response.tool_calls or response.text != forwarded.text:
            forwarded.discard()
            if response.finish_reason != INVALID:
                emit_response(response, on_delta)
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


class _ForwardedAnswer:
    """Hands on the answer in what the model writes."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._answer = AnswerText()
        self._forwarded: list[str] = []

    @property
    def text(self) -> str:
        """What was handed on."""
        return "".join(self._forwarded)

    def __call__(self, delta: Delta) -> None:
        if isinstance(delta, Discarded):
            self._answer = AnswerText()
            self.discard()
        elif isinstance(delta, TextDelta) and (found := self._answer.feed(delta.text)):
            self._forwarded.append(found)
            self._on_delta(TextDelta(found))

    def discard(self) -> None:
        """Take back what was handed on, if anything was."""
        if self._forwarded:
            self._forwarded = []
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


# Characters of a request that is repeated after a file was read.
_MAX_REPEATED = 200


def render_system(system: str, actions: Sequence[Action]) -> str:
    """The system text with all actions of the conversation and how to write them.

    All of them, not those allowed now: the text stays the same over a conversation, so that a local server
    finds it in its prompt cache. Descriptions may be a skill's: a line each, in which no tag is one.
    """
    lines = [
        "You work step by step. In each step you reply with exactly one action, as JSON:",
        '{"next": {"action": NAME, "arguments": {…}}}',
        *_about_thoughts(actions),
        "",
        "Actions:",
    ]
    for action in actions:
        lines.append(f"- {_line(action.name)}: {_line(action.description)}")
        lines.append(f"  arguments: {_shape(action.parameters)}")
    return f"{system.strip()}\n\n" + "\n".join(lines)


def render_messages(messages: Sequence[Message], actions: Sequence[Action]) -> list[Message]:
    """The conversation with calls as the JSON that the model wrote, and results as the user's words."""
    rendered: list[Message] = []
    results: list[str] = []
    shown: tuple[Media, ...] = ()
    for message in messages:
        if isinstance(message, ToolMessage):
            failed = " (failed)" if message.is_error else ""
            results.append(f"Result of {message.name}{failed}:\n{message.content}")
            shown += message.media
            continue
        if results:
            rendered.append(UserMessage("\n\n".join(results), shown))
            results, shown = [], ()
        if isinstance(message, AssistantMessage):
            rendered.append(AssistantMessage(_as_actions(message)))
        elif rendered and isinstance(rendered[-1], UserMessage):
            # Chat templates want user and assistant in turns.
            rendered[-1] = _joined(rendered[-1], message.content, message.media)
        else:
            rendered.append(message)
    hint = _hint(messages, actions)
    if results:
        rendered.append(UserMessage("\n\n".join([*results, hint]), shown))
    elif rendered and isinstance(rendered[-1], UserMessage):
        rendered[-1] = _joined(rendered[-1], hint)
    return rendered


def _joined(message: Message, text: str, media: tuple[Media, ...] = ()) -> UserMessage:
    return UserMessage(f"{message.content}\n\n{text}", (*message.media, *media))


def _hint(messages: Sequence[Message], actions: Sequence[Action]) -> str:
    """Return the hint for the next step. Small models follow it best at the prompt's end."""
    names = ", ".join(action.name for action in actions)
    last = messages[-1] if messages else None
    if isinstance(last, ToolMessage) and says_repeated(last.content):
        lead = f"Do not repeat this call: change its arguments, or take the action {ANSWER}."
    elif isinstance(last, ToolMessage) and not last.is_error:
        if last.name == "load_skill":
            lead = (
                "Follow these instructions now, step by step: first read the files that they tell you to read, then "
                "run the command that they give, with real values in place of its placeholders."
            )
        elif last.name == "load_skill_resource":
            lead = f"{_request(messages)}Find in this file what belongs to it. {_run(actions)}"
        elif failed_command(last):
            lead = (
                f"The command failed. {_request(messages)}Find in the files that you read what belongs to it. "
                f"{_run(actions)}"
            )
        elif gave_nothing(last):
            lead = (
                "The command printed nothing, so there is no value to state. Run another command, or take the action "
                f"{ANSWER} and state that there is no result."
            )
        else:
            lead = f"If this result is enough, take the action {ANSWER} and state what it says."
    elif isinstance(last, ToolMessage):
        lead = "That failed: try it differently, or answer that it cannot be done."
    elif any(action.name == "load_skill" for action in actions):
        lead = "If the description of a skill fits this, load that skill first."
    else:
        lead = "Decide what to do next."
    return f"({lead.strip()} Reply with one JSON action; allowed: {names}.)"


def _about_thoughts(actions: Sequence[Action]) -> list[str]:
    names = ", ".join(_line(action.name) for action in actions if action.with_thought)
    return [f'With {names}, write "{THOUGHT}": TEXT between "action" and "arguments".'] if names else []


def _run(actions: Sequence[Action]) -> str:
    if not any(action.with_thought for action in actions):
        return "Continue with the instructions."
    # Tried on a model of 1.5B: without the example it repeats the words of the request.
    return (
        f'Then run the command of the instructions, if they give one. In "{THOUGHT}", first state the value of each '
        'placeholder of the command, as in: "The CODE of the customer is 17, and the number of DAYS is 5."'
    )


def _request(messages: Sequence[Message]) -> str:
    """Repeat a short request: small models mix up lines of a file if the request is far above."""
    asked = next((message.content for message in reversed(messages) if isinstance(message, UserMessage)), "")
    if 0 < len(asked) <= _MAX_REPEATED:
        return f"The request was: {asked.strip()} "
    return "Look at the request again. "


def _as_actions(message: AssistantMessage) -> str:
    if not message.tool_calls:
        return _action(ANSWER, {"content": message.content})
    return "\n".join(_action(call.name, call.arguments) for call in message.tool_calls)


def _action(name: str, arguments: Mapping[str, Any] | str) -> str:
    return json.dumps({"next": {"action": name, "arguments": arguments}}, ensure_ascii=False, default=dict)


def _shape(parameters: Mapping[str, Any]) -> str:
    """Arguments in a line: names, kinds, which may be left out."""
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return "{}"
    required = parameters.get("required", ())
    parts = []
    for name, schema in properties.items():
        text = _kind(schema)
        if name not in required:
            text += ", may be left out"
        description = schema.get("description") if isinstance(schema, Mapping) else None
        parts.append(f'"{_line(name)}": <{text}{": " + _line(description) if description else ""}>')
    return "{" + ", ".join(parts) + "}"


def _line(text: Any) -> str:
    return escape(clean_line(str(text)))


def _kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema:
        return "one of " + ", ".join(map(_line, schema["enum"]))
    if schema.get("type") == "object" and "properties" in schema:
        return "object with " + ", ".join(map(_line, schema["properties"]))
    if "anyOf" in schema:
        return " or ".join(_kind(variant) for variant in schema["anyOf"] if variant != {"type": "null"})
    return _line(schema.get("type", "any"))
