"""Conversation messages in the format of the conventions for generative AI: roles and typed parts.

The functions inspect attributes of messages instead of their classes, because this layer must not import them.
"""

from __future__ import annotations

from typing import Any

__all__ = ["finish_reason", "input_message", "output_message"]


def input_message(message: Any) -> dict[str, Any]:
    """Return a message of a model request."""
    if hasattr(message, "call_id"):
        answer = {"type": "tool_call_response", "id": message.call_id, "response": message.content}
        return {"role": "tool", "parts": [answer]}
    role = "assistant" if hasattr(message, "tool_calls") else "user"
    return {"role": role, "parts": _parts(message.content, getattr(message, "tool_calls", ()))}


def output_message(response: Any) -> dict[str, Any]:
    """Return a model's answer."""
    return {
        "role": "assistant",
        "parts": _parts(response.text, response.tool_calls),
        "finish_reason": finish_reason(response),
    }


def finish_reason(response: Any) -> str:
    """Return the finish reason of the provider. Derive it from the answer if the provider returned none."""
    return str(response.finish_reason or ("tool_call" if response.tool_calls else "stop"))


def _parts(text: str, calls: Any) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    for call in calls:
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
    return parts
