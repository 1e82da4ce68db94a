"""Pieces of tool calls as messages of the Agent2Agent protocol: plain JSON, without its SDK."""

from __future__ import annotations

from typing import Any

from flink_skills.telemetry.deltas import ToolCallDelta
from flink_skills.telemetry.readable import readable

__all__ = ["DELTA_TYPE", "STREAMING_KEY", "a2a_message"]

#: Key in the metadata of a message that is about a call which is still being written.
STREAMING_KEY = "flink_skills_streaming_tool_call"
#: The ``type`` in the metadata of the part that holds the piece.
DELTA_TYPE = "streaming_function_call_delta"


def a2a_message(delta: ToolCallDelta, message_id: str) -> dict[str, Any]:
    """A piece of a tool call as an A2A ``Message`` with one ``DataPart``, for a status update of the task.

    >>> a2a_message(ToolCallDelta("call-1", "write", '{"text": "Dea'), "m-1")["parts"][0]["data"]
    {'id': 'call-1', 'name': 'write', 'delta': '{"text": "Dea'}
    """
    return {
        "kind": "message",
        "role": "agent",
        "messageId": message_id,
        "parts": [
            {
                "kind": "data",
                "data": {
                    "id": readable(delta.call_id),
                    "name": readable(delta.name),
                    "delta": readable(delta.arguments),
                },
                "metadata": {"type": DELTA_TYPE},
            }
        ],
        "metadata": {STREAMING_KEY: True},
    }
