"""What an error of the package ``mcp`` says of a connection."""

from __future__ import annotations

from typing import Any

from flink_skills.errors import SkillsError

__all__ = ["first_of", "is_broken", "is_closed", "is_end", "is_lost", "words_of"]

_MAX_LENGTH = 500
# What the package says in place of a server that gave a status and no answer; it has no class or code of its own.
_STATUS_TEXTS = ("Session terminated", "Server returned an error response")


def is_closed(error: Any) -> bool:
    """Whether an ``MCPError`` says that nothing comes over this connection any more."""
    from mcp.types import CONNECTION_CLOSED

    return bool(error.code == CONNECTION_CLOSED and error.message == "Connection closed")


def is_broken(error: Any) -> bool:
    """Whether an ``MCPError`` is no answer of the server, but the end of a request on its way."""
    from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

    return error.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT) or error.message in _STATUS_TEXTS


def is_end(error: BaseException) -> bool:
    """Return True if an error only states that the other end has gone."""
    first = first_of(error)
    return is_lost(first) or (hasattr(first, "code") and hasattr(first, "message") and is_closed(first))


def is_lost(error: BaseException) -> bool:
    """Whether another error is one of streams and sockets."""
    import anyio
    import httpx2

    broken = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, httpx2.TransportError)
    return isinstance(first_of(error), (OSError, EOFError, *broken))


def first_of(error: BaseException) -> BaseException:
    """The first error of nested groups."""
    while getattr(error, "exceptions", ()):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    return error


def words_of(error: BaseException) -> str:
    """The first error in one line that is not long; a server may have written it."""
    first = first_of(error)
    text = " ".join(str(first).split())
    if isinstance(first, SkillsError):
        return text
    said = f"{type(first).__name__}: {text}" if text else type(first).__name__
    return said if len(said) <= _MAX_LENGTH else said[:_MAX_LENGTH] + "…"
