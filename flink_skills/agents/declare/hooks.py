"""Values that the hooks of an agent receive and return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.errors import TurnError
from flink_skills.tools.base import ToolResult

__all__ = ["Refusal", "ToolInvocation"]


@dataclass(frozen=True)
class Refusal:
    """The result of a hook that refuses a request to a model or a tool call.

    A refused request fails the turn. A refused call returns an error with the reason to the model.

    Attributes:
        reason: The reason, one sentence.

    >>> Refusal("the budget of this tenant is spent").reason
    'the budget of this tenant is spent'
    """

    reason: str


class ToolInvocation:
    """A tool call, as :meth:`Agent.around_tool` and the ``around`` of a tool receive it.

    Attributes:
        name: The name of the tool.
        arguments: A copy of the canonical arguments: declared names, types and defaults. They fit the tool.

    Example:
        >>> result = await call.run({**call.arguments, "limit": 10})
    """

    __slots__ = ("_execute", "_hook", "arguments", "name", "result")

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any],
        execute: Callable[[Mapping[str, Any]], Awaitable[ToolResult]],
        hook: str = "around_tool",
    ) -> None:
        self._hook = hook
        self.name = name
        self.arguments = arguments
        self._execute: Callable[[Mapping[str, Any]], Awaitable[ToolResult]] | None = execute
        #: The result of :meth:`run`, None before.
        self.result: ToolResult | None = None

    async def run(self, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call the tool, and return its result. A call that fails returns a result with ``is_error``.

        Changed arguments that do not fit the tool return its error. The runtime requests the approval that the tool
        needs, and applies limits and retries.

        Args:
            arguments: The arguments. None: those of the call.

        Raises:
            TurnError: The hook runs the call a second time, or after the hook has ended.
            LimitError: The turn is at a limit.
        """
        execute, self._execute = self._execute, None
        if execute is None:
            raise TurnError(f"{self._hook} ran the call of {self.name!r} more than once, or after its end: run it once")
        self.result = await execute(self.arguments if arguments is None else arguments)
        return self.result

    def close(self) -> None:
        """Reject a later :meth:`run`."""
        self._execute = None
