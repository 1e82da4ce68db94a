"""Keys of an agent in a job file that are for its tools and its code."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from flink_skills.agents import AgentSpec


def accepted(key: str, value: Any) -> bool:
    try:
        AgentSpec.model_validate({key: value})
    except ValidationError:
        return False
    return True


def test_keys_of_tools_and_of_code() -> None:
    assert accepted("run_code", True)
    assert not accepted("run_code", "sometimes")
    assert accepted("mcp_servers", {"shop": {"url": "http://shop:8000/mcp", "tools": ["price"]}})
    assert not accepted("mcp_servers", ["http://shop:8000/mcp"])
    assert accepted("chat_model_setups", {"a": {"clazz": "offline.setup", "run_code": True}})
