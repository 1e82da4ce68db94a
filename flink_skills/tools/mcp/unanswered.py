"""Limit on the requests of an MCP server that wait for an answer of the worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["MAX_UNANSWERED", "with_few_unanswered"]

#: Each of them holds a task of the worker. Servers that read the answers have a few.
MAX_UNANSWERED = 256


@asynccontextmanager
async def with_few_unanswered(streams: Any, on_end: Callable[[str], None]) -> AsyncIterator[Any]:
    """Enter ``streams`` of a transport, and end them after 256 requests whose answers the server did not read.

    Args:
        streams: A context manager with the read and the write stream.
        on_end: Receives the reason.

    >>> async with with_few_unanswered(streams, on_end) as (read, write): ...
    """
    async with streams as (read, write):
        count = _Count()
        yield _Requests(read, count, on_end), _Answers(write, count)


class _Count:
    def __init__(self) -> None:
        self.value = 0


class _Stream:
    """Stream of a transport that shares a count."""

    def __init__(self, stream: Any, count: _Count) -> None:
        self._stream = stream
        self._count = count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


class _Requests(_Stream):
    def __init__(self, stream: Any, count: _Count, on_end: Callable[[str], None]) -> None:
        super().__init__(stream, count)
        self._on_end = on_end

    async def receive(self) -> Any:
        import anyio

        item = await self._stream.receive()
        message = getattr(item, "message", None)
        if hasattr(message, "method") and hasattr(message, "id"):
            self._count.value += 1
            if self._count.value > MAX_UNANSWERED:
                self._on_end(f"the server sends requests and does not read the answers to {MAX_UNANSWERED} of them")
                raise anyio.EndOfStream
        return item

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Answers(_Stream):
    async def send(self, item: Any) -> None:
        await self._stream.send(item)
        if not hasattr(item.message, "method"):
            self._count.value -= 1
