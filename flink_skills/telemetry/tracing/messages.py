"""Messages of a conversation in the form of the conventions: roles, and parts of a type.

They are read by what they have: this layer knows nothing of the classes above it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["finish_reason", "input_message", "output_message"]


def input_message(message: Any) -> dict[str, Any]:
    """A message that a model was sent."""
    if hasattr(message, "call_id"):
        answer = {"type": "tool_call_response", "id": message.call_id, "response": message.content}
        return {"role": "tool", "parts": [answer]}
    role = "assistant" if hasattr(message, "tool_calls") else "user"
    return {"role": role, "parts": _parts(message.content, getattr(message, "tool_calls", ()))}


def output_message(response: Any) -> dict[str, Any]:
    """What a model answered."""
    return {
        "role": "assistant",
        "parts": _parts(response.text, response.tool_calls),
        "finish_reason": finish_reason(response),
    }


def finish_reason(response: Any) -> str:
    """Why the model ended: what its provider said, else what the answer shows."""
    return str(response.finish_reason or ("tool_call" if response.tool_calls else "stop"))


def _parts(text: str, calls: Any) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    for call in calls:
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
    return parts
