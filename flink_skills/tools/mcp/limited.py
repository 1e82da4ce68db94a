"""Limits on what a server sends: it may send without end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

__all__ = ["MAX_ANSWER", "MAX_VALUES", "TOO_MANY_VALUES", "limited_client", "values_in"]

#: Bytes.
MAX_ANSWER = 16 << 20
#: Objects and lists of one message: each takes 50 times the memory of its text.
MAX_VALUES = 500_000
# Line ends are of one or two bytes. A lone one at the end of a piece is completed by the next piece.
_EVENT_END = re.compile(rb"(?:\r\n|\r(?!\n)|\n){2}")
_MAX_END_LENGTH = 4
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
    url: str = "",
    on_status: Callable[[int, str], None] | None = None,
) -> httpx2.AsyncClient:
    """A client for the transports of the package ``mcp``.

    To read an answer that is longer than 16 MiB, that has more than 500,000 objects and lists, or that is compressed
    although nothing of the kind was asked for, raises ``httpx2.StreamError``. Streams of events have no end: these are
    the limits of each event, with ``httpx2.SSEError``. ``on_status`` receives the number and the text of each status
    of ``url``, and not those of authorization servers.
    """
    import httpx2

    async def limit(response: httpx2.Response) -> None:
        if on_status is not None and str(response.request.url) == url:
            on_status(response.status_code, response.reason_phrase)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            response.stream = _Limited(response.stream, 0, f"the answer is compressed ({encoding[:20]})")
        elif response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _LimitedEvents(
                response.stream, MAX_ANSWER, f"an event is longer than {MAX_ANSWER:,} bytes"
            )
        else:
            response.stream = _Limited(response.stream, MAX_ANSWER, f"the answer is longer than {MAX_ANSWER:,} bytes")

    class _Limited(httpx2.AsyncByteStream):
        _error: type[Exception] = httpx2.StreamError

        def __init__(self, stream: Any, most: int, problem: str) -> None:
            self._stream, self._most, self._problem = stream, most, problem

            self._size = self._values = 0

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in self._stream:
                self._count(chunk)
                yield chunk

        def _count(self, chunk: bytes) -> None:
            self._size += len(chunk)
            if self._size > self._most:
                raise self._error(self._problem)
            self._values += values_in(chunk)
            if self._values > MAX_VALUES:
                raise self._error(TOO_MANY_VALUES)

        async def aclose(self) -> None:
            await self._stream.aclose()

    class _LimitedEvents(_Limited):
        _error = httpx2.SSEError  # the transports report the text of this one only
        _before = b""

        def _count(self, chunk: bytes) -> None:
            text = self._before + chunk
            begin = len(self._before)
            for end in _EVENT_END.finditer(text):
                if end.end() > begin:
                    super()._count(text[begin : end.end()])
                    self._size = self._values = 0
                    begin = end.end()
            super()._count(text[begin:])
            self._before = text[1 - _MAX_END_LENGTH :]

    return httpx2.AsyncClient(
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        timeout=timeout,
        auth=auth,
        event_hooks={"response": [limit]},
    )
