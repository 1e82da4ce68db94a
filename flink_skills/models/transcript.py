"""A conversation with tools as plain text turns, for models that know of no tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flink_skills.manager.menu import escape
from flink_skills.models.actions import ANSWER, THOUGHT, Action, failed_command, gave_nothing
from flink_skills.models.messages import AssistantMessage, Media, Message, ToolMessage, UserMessage
from flink_skills.skill.text import clean_line
from flink_skills.tools.base import says_repeated

__all__ = ["render_messages", "render_system"]

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
    """What to do next, at the end of the prompt, where small models heed it most."""
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
