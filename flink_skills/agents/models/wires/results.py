"""Parts of messages that several wires map in the same way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from flink_skills.agents.messages import ToolCall, ToolMessage
from flink_skills.agents.models.wires.json_bytes import arguments_of

__all__ = ["NO_ANSWER", "NO_TEXT", "arguments_to_send", "error_text", "number_of", "with_ids"]

# Some providers reject an empty message, and without a message user and assistant do not alternate.
NO_ANSWER = "(no answer)"
NO_TEXT = "(empty message)"


def arguments_to_send(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return the arguments of an earlier call. Providers take only objects, so a text is wrapped."""
    found = arguments_of(arguments)
    return {"invalid_arguments": found} if isinstance(found, str) else dict(found)


def error_text(message: ToolMessage) -> str:
    """Return the result of a call for an API that has no field for errors."""
    if not message.is_error or _says_so(message.content):
        return message.content
    return json.dumps({"error": message.content}, ensure_ascii=False)


def _says_so(content: str) -> bool:
    if not content.startswith("{"):
        return False
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value.get("error"))


def with_ids(calls: Iterable[ToolCall], place: str) -> tuple[ToolCall, ...]:
    """Return the calls of one answer with an id each: some servers return none, or the same one twice.

    ``place`` distinguishes the answers of a conversation, for instance the id of the answer.
    """
    seen: set[str] = set()
    found = []
    for number, call in enumerate(calls):
        used = call
        if not call.id or call.id in seen:
            used = ToolCall(f"call-{place}-{number}", call.name, call.arguments)
        seen.add(used.id)
        found.append(used)
    return tuple(found)


def number_of(value: Any) -> int:
    """Return a number of tokens, 0 for anything that is none."""
    return int(value) if isinstance(value, (int, float)) and value > 0 else 0
