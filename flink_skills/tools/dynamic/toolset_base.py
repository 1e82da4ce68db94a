"""Tool sets: several tools that come from one place, and may differ from turn to turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from flink_skills.tools.base import Tool, ToolContext

__all__ = ["BaseToolSet"]


class BaseToolSet(ABC):
    """Gives tools for a context (row J6). Derive from it, and put an instance into a pool (``@tool_pool``).

    A worker makes one instance for each agent, and all turns use it, several at a time. What a tool set raises is
    logged, and its tools are absent in that turn.

    >>> class Shop(BaseToolSet):
    ...     name = "shop"
    ...     async def get_tools(self, context):
    ...         return [price, discount] if str(context.key).startswith("vip-") else [price]
    """

    #: What logs call it; the name of the class where it is empty.
    name: str = ""

    async def initialize(self) -> None:  # noqa: B027 - most have nothing to do
        """Called in the worker before the first :meth:`get_tools`, and again later if it failed."""

    @abstractmethod
    async def get_tools(self, context: ToolContext) -> Iterable[Tool | Callable[..., Any]]:
        """The tools, or plain functions, that this turn may have. Asked once for each turn.

        ``context`` has key, turn, agent, skills and skill state of the turn, and no call id.
        """

    async def close(self) -> None:  # noqa: B027
        """Called when the worker closes the agent. Not called if :meth:`initialize` never succeeded."""
