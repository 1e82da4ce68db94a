"""Deltas of tool calls as messages of the Agent2Agent protocol, in plain JSON without its SDK."""

from __future__ import annotations

from typing import Any

from flink_skills.telemetry.activity import ToolCallDelta, replace_surrogates

#: Metadata key of a message about a tool call that the model is still writing.
STREAMING_KEY = "flink_skills_streaming_tool_call"
#: ``type`` in the metadata of the part that contains the delta.
DELTA_TYPE = "streaming_function_call_delta"


def a2a_message(delta: ToolCallDelta, message_id: str) -> dict[str, Any]:
    """Return a delta of a tool call as an A2A ``Message`` with one ``DataPart``, for a status update of the task.

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
                    "id": replace_surrogates(delta.call_id),
                    "name": replace_surrogates(delta.name),
                    "delta": replace_surrogates(delta.arguments),
                },
                "metadata": {"type": DELTA_TYPE},
            }
        ],
        "metadata": {STREAMING_KEY: True},
    }
