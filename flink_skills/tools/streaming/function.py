"""Python functions as tools that see their arguments grow."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Union

from flink_skills.errors import ConfigError
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.function import FunctionTool
from flink_skills.tools.streaming.streamed import StreamedArguments
from flink_skills.tools.threads import in_thread

__all__ = ["OnArguments", "StreamingFunctionTool"]

OnArguments = Callable[[StreamedArguments, ToolContext], Union[Awaitable[None], None]]
"""Is told of arguments while a model writes them; a plain function runs in a thread."""

_KEPT = (
    *("uses_workspace", "changes_state", "runs_in", "idempotent", "timeout", "max_output", "max_concurrent"),
    *("repeats", "approve", "around"),
)


class StreamingFunctionTool(Tool):
    """Function as a tool that reads its arguments while the model writes them.

    ``func`` is a function that :class:`~flink_skills.tools.FunctionTool` accepts, or an existing tool, which has its
    ``name``, ``description`` and ``more`` already. ``on_arguments`` receives the arguments as they grow. Without it,
    only observers of the turn receive them. The function is called one time, with all arguments, after validation.

    Raises :class:`ConfigError` if the function cannot be a tool, or if both a tool and its arguments are passed.

    >>> async def show(streamed: StreamedArguments, context: ToolContext) -> None:
    ...     await send(context.key, streamed.arguments.get("text", ""))
    >>> tool = StreamingFunctionTool(write_letter, show)
    """

    is_streaming = True

    def __init__(
        self,
        func: Callable[..., Any] | Tool,
        on_arguments: OnArguments | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        **more: Any,
    ) -> None:
        if not isinstance(func, Tool):
            func = FunctionTool(func, name, description, **more)
        elif name or description or more:
            raise ConfigError(
                f"tool {func.spec.name!r} already exists: set its name, description and limits where it is created"
            )
        if on_arguments is not None and not callable(on_arguments):
            raise ConfigError(f"tool {func.spec.name!r}: on_arguments={on_arguments!r} is not a function")
        self._tool: Tool = func
        self._on_arguments = on_arguments
        called = getattr(on_arguments, "__call__", None)  # noqa: B004
        self._is_async = inspect.iscoroutinefunction(on_arguments) or inspect.iscoroutinefunction(called)
        for kept in _KEPT:
            setattr(self, kept, getattr(func, kept))

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    def canonical(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._tool.canonical(arguments)

    def rejected(self, arguments: Mapping[str, Any], error: Exception) -> ToolResult:
        return self._tool.rejected(arguments, error)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return await self._tool.call(arguments, context)

    async def on_arguments(self, streamed: StreamedArguments, context: ToolContext) -> None:
        if self._on_arguments is None:
            return await self._tool.on_arguments(streamed, context)
        if self._is_async:
            told: Any = self._on_arguments(streamed, context)
        else:
            told = await in_thread(self._on_arguments, streamed, context)
        if inspect.isawaitable(told):
            await told
        return None
