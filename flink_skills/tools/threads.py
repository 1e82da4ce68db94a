"""Calls of the user's functions on threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


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
