"""The HTTP client that providers' client libraries use: many connections, and fast with many in flight."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

__all__ = ["http_client"]

_CONNECT_SECONDS = 10.0
_LONGEST_SECONDS = 3600.0  # requests bring their own timeout; this bounds those without one


def http_client(sdk: ModuleType, max_connections: int) -> Any:
    """An asynchronous HTTP client for ``sdk`` (``openai`` or ``anthropic``).

    aiohttp carries it where it is installed: with a thousand requests in flight, httpx spends more time in
    its connection pool than on requests.
    """
    library = _library(sdk)
    arguments: dict[str, Any] = {
        "timeout": library.Timeout(_LONGEST_SECONDS, connect=_CONNECT_SECONDS),
        "limits": library.Limits(max_connections=max_connections, max_keepalive_connections=max_connections),
    }
    aiohttp_client = getattr(sdk, "DefaultAioHttpClient", None)
    if aiohttp_client is not None:
        try:
            return aiohttp_client(**arguments)
        except RuntimeError:
            # The library's way to say that aiohttp (or its adapter to it) is not installed.
            aiohttp_client = None
    return sdk.DefaultAsyncHttpxClient(**arguments)


def _library(sdk: ModuleType) -> Any:
    """httpx or its successor, whichever the library was built on: their types must not be mixed."""
    for base in sdk.DefaultAsyncHttpxClient.__mro__:
        if base.__name__ == "AsyncClient":
            return importlib.import_module(base.__module__.partition(".")[0])
    return importlib.import_module("httpx")
