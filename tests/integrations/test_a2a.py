from __future__ import annotations

import json

import pytest

from flink_skills.integrations import a2a_message
from flink_skills.telemetry import ToolCallDelta


@pytest.mark.row("J23")
def test_a_piece_is_a_data_part_of_a_marked_message() -> None:
    message = a2a_message(ToolCallDelta("call-1", "write", '{"text": "half \ud83d'), "m-1")
    json.dumps(message, ensure_ascii=False).encode()
    assert message["metadata"] == {"flink_skills_streaming_tool_call": True}
    assert (message["kind"], message["role"], message["messageId"]) == ("message", "agent", "m-1")
    [part] = message["parts"]
    assert (part["kind"], part["metadata"]) == ("data", {"type": "streaming_function_call_delta"})
    assert part["data"] == {"id": "call-1", "name": "write", "delta": '{"text": "half \ufffd'}
