"""The environment of agents that run over lists, in the process of a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flink_skills import AgentsExecutionEnvironment

__all__ = ["local_environment"]


def local_environment(options: Mapping[Any, Any] | None = None) -> AgentsExecutionEnvironment:
    """Return an environment with options."""
    made = AgentsExecutionEnvironment.get_execution_environment()
    for key, value in (options or {}).items():
        made.get_config().set(key, value)
    return made
