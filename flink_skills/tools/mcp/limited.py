"""Limits on what a server sends: it may send without end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

__all__ = ["LARGEST_ANSWER", "MAX_VALUES", "TOO_MANY_VALUES", "limited_client", "values_in"]

#: Bytes.
LARGEST_ANSWER = 16 << 20
#: Objects and lists of one message: each takes 50 times the memory of its text.
MAX_VALUES = 500_000
TOO_MANY_VALUES = f"a message has more than {MAX_VALUES:,} objects and lists"


def values_in(data: bytes) -> int:
    """Return an upper bound of the objects and lists in JSON.

    >>> values_in(b'[{}, "[", 1]')
    3
    """
    return data.count(b"{") + data.count(b"[")


def limited_client(
    headers: Mapping[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,
    auth: Any = None,
    *,
    on_status: Callable[[int, str], None] | None = None,
) -> httpx2.AsyncClient:
    """A client for the transports of the package ``mcp``.

    To read an answer that is longer than 16 MiB, that has more than 500,000 objects and lists, or that is compressed
    although nothing of the kind was asked for, raises ``httpx2.StreamError``. Streams of events have no end; the
    transports limit the size of each event. ``on_status`` receives the number and the text of each status of 400 and
    more.
    """
    import httpx2

    async def limit(response: httpx2.Response) -> None:
        if on_status is not None and response.status_code >= 400:
            on_status(response.status_code, response.reason_phrase)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            response.stream = _Limited(response.stream, 0, f"the answer is compressed ({encoding[:20]})")
        elif not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Limited(
                response.stream, LARGEST_ANSWER, f"the answer is longer than {LARGEST_ANSWER:,} bytes"
            )

    class _Limited(httpx2.AsyncByteStream):
        def __init__(self, stream: Any, most: int, problem: str) -> None:
            self._stream, self._most, self._problem = stream, most, problem

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = values = 0
            async for chunk in self._stream:
                size += len(chunk)
                if size > self._most:
                    raise httpx2.StreamError(self._problem)
                values += values_in(chunk)
                if values > MAX_VALUES:
                    raise httpx2.StreamError(TOO_MANY_VALUES)
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    return httpx2.AsyncClient(
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        timeout=timeout,
        auth=auth,
        event_hooks={"response": [limit]},
    )
