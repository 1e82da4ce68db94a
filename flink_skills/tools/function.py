"""Python functions as tools."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Union

from pydantic_core import PydanticSerializationError, to_json

from flink_skills.errors import ConfigError, LimitError, near_misses
from flink_skills.resource import mark_of
from flink_skills.tools.arguments import ArgumentError, Canonical
from flink_skills.tools.base import (
    CheckedTool,
    StreamedArguments,
    Tool,
    ToolContext,
    ToolResult,
    ToolSpec,
    TurnInterruptedError,
)
from flink_skills.tools.function_arguments import FunctionArguments, SignatureError, called_function
from flink_skills.tools.media import Media
from flink_skills.tools.schemas import one_spelling


async def in_thread(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what ``func`` returns. Call it on a thread of the loop's executor.

    Raises what ``func`` raises, and ``RuntimeError`` for a ``StopIteration``, as each coroutine does. A future rejects
    a ``StopIteration``, so that its caller would wait forever.
    """
    value = await asyncio.to_thread(_call, func, args, kwargs)
    if isinstance(value, _Raised):
        raise value.error
    return value


class _Raised:
    """An exception on its way out of a thread."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return func(*args, **kwargs)
    except BaseException as error:  # func is the user's
        return _Raised(error)


_log = logging.getLogger(__name__)


class FunctionTool(CheckedTool):
    """A function, method or callable object as a tool.

    Its annotations make the schema, its docstring without the sections of arguments and errors the description, and
    ``Args:`` lines the descriptions of arguments. A parameter annotated with :class:`ToolContext`, or
    one without an annotation that is called ``tool_context``, gets the context and is not shown to models. Plain
    functions run in a thread. A text is given to the model as it is, a :class:`ToolResult` too, a :class:`Media` (or a
    list of texts and media) as an image, a PDF document or audio, anything else as JSON;
    an exception becomes an error result, which is ``retryable`` where the exception says so or is one of connections
    and deadlines. The other arguments are those of :class:`Tool`. The default of
    each is that of the function's ``@tool``.

    Raises :class:`ConfigError` for a function with arguments without a schema, and for a docstring that describes an
    argument that the function does not have.

    >>> def add(a: int, b: int = 1) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> FunctionTool(add).spec.description
    'Add two numbers.'
    """

    def __init__(
        self,
        func: Callable[..., Any],
        name: str | None = None,
        description: str | None = None,
        *,
        idempotent: bool | None = None,
        timeout: float | None = None,
        max_output: int | None = None,
        max_concurrent: int | None = None,
        repeats: bool | None = None,
        approve: bool | None = None,
        around: Callable[..., Any] | None = None,
    ) -> None:
        if isinstance(func, (staticmethod, classmethod)):
            func = func.__func__
        if not callable(func):
            raise ConfigError(f"tool {name or func!r} is not callable: pass a function")
        self._func = func
        called = called_function(func)
        mark = mark_of(func) or mark_of(called)
        if mark is not None and mark.kind == "tool":
            name, description = name or mark.name, description or mark.description
            for key, value in mark.arguments.items():
                setattr(self, key, value)
        given = {
            "idempotent": idempotent,
            "timeout": timeout,
            "max_output": max_output,
            "max_concurrent": max_concurrent,
            "repeats": repeats,
            "approve": approve,
            "around": around,
        }
        for key, value in given.items():
            if value is not None:
                setattr(self, key, value)
        is_object = not (inspect.isroutine(called) or inspect.isclass(called))
        self._name: str = name or (type(called).__name__ if is_object else called.__name__)
        self._is_async = inspect.iscoroutinefunction(type(called).__call__ if is_object else called)
        try:
            # ToolContext is often imported for type checkers only.
            self._arguments: FunctionArguments = FunctionArguments(
                self._name, func, is_hidden=_is_context, names={"ToolContext": ToolContext}
            )
        except SignatureError as error:
            raise ConfigError(f"tool {error}") from error
        _check_described(self._name, func, called, self._arguments)
        description = description or self._arguments.description
        self.remarks = _remarks(description, self._arguments.untyped)
        self._spec = ToolSpec(self._name, description or self._name, self._arguments.schema)

    def canonical(self, arguments: Mapping[str, Any]) -> Canonical:
        if self._arguments.accepts_any:
            # pydantic takes another spelling of a parameter for one of the further arguments.
            arguments = one_spelling(self._name, arguments, self._arguments.schema["properties"])
        return super().canonical(arguments)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            checked = self._arguments.read(arguments)
        except ArgumentError as error:
            return ToolResult(str(error), is_error=True)
        positional, named = self._arguments.bind(checked, context)
        try:
            if self._is_async:
                value = await self._func(*positional, **named)
            else:
                value = await in_thread(self._func, *positional, **named)
                if inspect.isawaitable(value):
                    value = await value
            return result_of(value)
        except (LimitError, TurnInterruptedError):
            raise  # of a wait of the function
        # A function that calls sys.exit() must not take the worker with it.
        except (Exception, SystemExit) as error:
            _log.exception("tool %s failed in turn %s (call %s)", self._name, context.turn, context.call_id)
            message = f"{self._name} failed: {type(error).__name__}: {error}"
            return ToolResult(message, is_error=True, retryable=passes(error))


def _check_described(name: str, func: Any, called: Any, arguments: FunctionArguments) -> None:
    """Raise :class:`ConfigError` if the docstring describes an argument that the function does not have."""
    # A partial has fewer arguments than its function.
    names = [parameter for of in (func, called) for parameter in inspect.signature(of).parameters]
    for argument in () if arguments.accepts_any else arguments.described:
        if argument not in (*names, "self"):
            near = near_misses(argument, names)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(dict.fromkeys(names)) or 'none'}."
            raise ConfigError(
                f"tool {name!r}: the docstring describes the argument {argument!r}, which the function does not have: "
                f"{hint} Correct the name in the docstring."
            )


def _remarks(description: str, untyped: list[str]) -> tuple[str, ...]:
    arguments = ", ".join(untyped)
    return (
        *(() if description else ("models do not learn what it does: write a docstring",)),
        *((f"models do not learn the types of its arguments ({arguments}): annotate them",) if untyped else ()),
    )


def passes(error: BaseException) -> bool:
    """Return True if the same call may succeed later, by the attribute of the error or by its type."""
    retryable = getattr(error, "retryable", None)
    return (
        retryable
        if isinstance(retryable, bool)
        else isinstance(error, (ConnectionError, TimeoutError, asyncio.TimeoutError))
    )


def _is_context(parameter: inspect.Parameter, hint: Any) -> bool:
    if hint is parameter.empty:
        return parameter.name == "tool_context"
    return hint is ToolContext or any(
        _is_context(parameter, part) for part in typing.get_args(hint) if part is not type(None)
    )


def result_of(value: Any) -> ToolResult:
    """Return the result for ``value``: a text unchanged, media as media, and anything else as JSON.

    A value without a JSON form is converted to text. A list or tuple may contain media and texts.
    """
    if isinstance(value, ToolResult):
        return value
    media = _media_in(value)
    if media:
        return _with_media(value if isinstance(value, (list, tuple)) else [value], media)
    if isinstance(value, str):
        return ToolResult(value, value=value)
    try:
        text = to_json(value, fallback=str, inf_nan_mode="strings")
    except PydanticSerializationError:
        text = to_json(value, fallback=str, inf_nan_mode="strings", bytes_mode="base64")  # bytes that are not UTF-8
    plain = json.loads(text)
    return ToolResult(json.dumps(plain, ensure_ascii=False), value=plain)


def _media_in(value: Any) -> tuple[Media, ...]:
    if isinstance(value, Media):
        return (value,)
    return tuple(of for of in value if isinstance(of, Media)) if isinstance(value, (list, tuple)) else ()


def _with_media(parts: typing.Sequence[Any], media: tuple[Media, ...]) -> ToolResult:
    """Return the result of texts and media. Its text names each item of media in its position."""
    texts = [f"[{of.summary}]" if isinstance(of, Media) else result_of(of).content for of in parts]
    value = [
        {"name": of.name, "media_type": of.media_type, "size_bytes": of.size}
        if isinstance(of, Media)
        else result_of(of).value
        for of in parts
    ]
    return ToolResult("\n".join(texts), value=value[0] if len(value) == 1 else value, media=media)


OnArguments = Callable[[StreamedArguments, ToolContext], Union[Awaitable[None], None]]
"""Receives arguments while a model writes them. A plain function runs in a thread."""

_KEPT = (
    *("uses_workspace", "changes_state", "runs_in", "idempotent", "timeout", "max_output", "max_concurrent"),
    *("repeats", "approve", "around", "remarks"),
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
            result: Any = self._on_arguments(streamed, context)
        else:
            result = await in_thread(self._on_arguments, streamed, context)
        if inspect.isawaitable(result):
            await result
        return None
