"""Client for a server's skills: threads share one connection, which is closed when it is idle."""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, Literal, TypeVar

from flink_skills.errors import ConfigError, ExecutionError, SkillsError, SourceError
from flink_skills.skill.text import clean_line
from flink_skills.tools.mcp.parameters import ConnectionParams
from flink_skills.tools.mcp.server_connection import McpConnection, McpLostError
from flink_skills.tools.mcp.server_messages import AddressCheck
from flink_skills.tools.mcp.transports import reports_changes

#: The extension's identifier (modelcontextprotocol/ext-skills, ``specification/stable/skills.mdx``).
EXTENSION = "io.modelcontextprotocol/skills"

T = TypeVar("T")

_IDLE_SECONDS = 30.0
# A server that is watched is queried again after so long, because its reports can be lost.
_WATCH_SECONDS = 3_600.0
# Seconds before another attempt. 0: there is none.
_PAUSES = (0.5, 1.0, 0.0)
_MAX_PAGES = 10_000
_METHOD_NOT_FOUND, _INVALID_PARAMS = -32601, -32602
# Time for the end of a request that ran out of time.
_GRACE_SECONDS = 5.0


class SkillClient:
    """Requests to one server about its skills. Threads can share it; no request waits for another one.

    Args:
        label: The server's name in messages.
        params: The connection.
        timeout: Maximum seconds for a request, including retries.
        check: Receives addresses before they are connected to. It raises an error to prevent it.
    """

    def __init__(self, label: str, params: ConnectionParams, timeout: float, check: AddressCheck) -> None:
        self.label = label
        self._check = check
        self.timeout = timeout
        self._params = params
        self._connection: McpConnection | None = None
        self._opening = asyncio.Lock()
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None
        self._pid = 0

    @property
    def shown(self) -> str:
        """The server in messages."""
        return f"MCP server {self.label!r} ({self._params.shown})"

    def pages(self, timeout: float) -> Iterator[Mapping[str, Any]]:
        """Yield the ``skills/list`` pages, within ``timeout`` seconds together.

        Raises :class:`SourceError`, including for a cursor that was returned before and for more than 10,000 pages.
        """
        deadline = time.monotonic() + timeout
        cursors: set[str] = set()
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            parameters = {} if cursor is None else {"cursor": cursor}
            page = self._request("skills/list", parameters, deadline - time.monotonic())
            yield page
            cursor = page.get("nextCursor")
            if cursor is None:
                return
            if not isinstance(cursor, str) or cursor in cursors:
                raise self._error("skills/list", "the cursor of the next page is invalid, or was returned before")
            cursors.add(cursor)
        raise self._error("skills/list", f"the list has more than {_MAX_PAGES:,} pages")

    def entry(self, uri: str) -> Mapping[str, Any]:
        """Return the ``skills/get`` result. Raises :class:`SourceError`."""
        return self._request("skills/get", {"uri": uri}, self.timeout)

    def read(self, uri: str) -> bytes:
        """Return a resource's content. Raises :class:`SourceError`."""
        contents = self._request("resources/read", {"uri": uri}, self.timeout).get("contents")
        found = [one for one in contents if isinstance(one, dict)] if isinstance(contents, list) else []
        chosen = [one for one in found if one.get("uri") == uri] or found
        if len(chosen) == 1:
            with suppress(UnicodeEncodeError, binascii.Error, ValueError):
                if isinstance(chosen[0].get("text"), str):
                    return str(chosen[0]["text"]).encode()
                if isinstance(chosen[0].get("blob"), str):
                    return base64.b64decode(chosen[0]["blob"], validate=True)
        raise self._error("resources/read", f"the response for {clean_line(uri)[:200]} has no content")

    def _request(self, method: str, parameters: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
        """Send a request, and again if the connection is lost. Raises :class:`SourceError`."""
        deadline = time.monotonic() + timeout
        result: Mapping[str, Any] = {}
        for pause in _PAUSES:
            try:
                result = self._run(functools.partial(_send, method, parameters), deadline - time.monotonic())
                break
            except (asyncio.TimeoutError, TimeoutError, FutureTimeoutError):
                raise self._error(method, f"the server did not answer within {timeout:g} s", retryable=True) from None
            except SkillsError as error:
                if not isinstance(error, McpLostError) or not pause or time.monotonic() + pause > deadline:
                    raise self._error(method, str(error), retryable=getattr(error, "retryable", False)) from None
                time.sleep(pause)
        if (kind := result.get("resultType", "complete")) != "complete":
            raise self._error(method, f"the result has resultType {clean_line(str(kind))[:40]!r}, not 'complete'")
        return result

    def _error(self, method: str, reason: str, *, retryable: bool = False) -> SourceError:
        return SourceError(f"{self.shown}: {method} failed: {reason}", source=self.label, retryable=retryable)

    def _run(self, request: Callable[[Any], Awaitable[T]], timeout: float) -> T:
        loop = _loop(os.getpid())
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(self._ask(request), timeout), loop)
        try:
            return future.result(timeout + _GRACE_SECONDS)
        finally:
            future.cancel()

    async def _ask(self, request: Callable[[Any], Awaitable[T]]) -> T:
        if self._pid != os.getpid():  # a fork has neither the loop nor its connections
            self._pid, self._connection, self._users, self._opening = os.getpid(), None, 0, asyncio.Lock()
        self._users += 1
        connection = None
        try:
            async with self._opening:
                connection = await self._connected()
            return await connection.ask(request)
        except McpLostError:
            self._close()  # the next request opens another one, without the pauses of a reconnect
            raise
        except asyncio.CancelledError:
            if connection is not None and connection is self._connection:
                # A program that hangs answers nothing more. Other requests have their time.
                self._connection = None
                asyncio.get_running_loop().call_later(self.timeout, _close_soon, connection)
            raise
        finally:
            self._users -= 1
            if not self._users:
                self._close_later()

    async def _connected(self) -> McpConnection:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._connection is not None:
            return self._connection
        connection = self._new(_check_extension)
        try:
            await connection.open(None)
            if not connection.connected:
                raise _NotReachedError(connection.problem, retryable=connection.start_error().retryable)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        return connection

    def _new(
        self,
        on_open: Callable[[Any], Awaitable[None]],
        interval: float = _IDLE_SECONDS,
        watched: Literal["", "resource"] = "",
    ) -> McpConnection:
        return McpConnection(
            self.label,
            self._params,
            shell=None,
            on_open=on_open,
            interval=interval,
            answer_within=0.0,
            on_omitted=lambda name, reason: None,
            on_change=lambda: None,
            check=self._check,
            watched=watched,
        )

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed``, in another thread, when the server reports another list. Return a function that ends this.

        It holds a connection that is opened again when it is lost. Without reports by the server, it is closed.
        """
        loop, was_open = _loop(os.getpid()), False

        async def looked(client: Any) -> None:
            nonlocal was_open
            if not reports_changes(client, "resource"):
                end()
            elif was_open:  # also after a loss: reports in between are missing
                changed()
            was_open = True

        def end() -> None:
            loop.call_soon_threadsafe(_close_soon, connection)

        connection = self._new(looked, _WATCH_SECONDS, "resource")
        asyncio.run_coroutine_threadsafe(connection.open(0.0), loop)
        return end

    def _close_later(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._close)

    def _close(self) -> None:
        connection, self._connection, self._idle = self._connection, None, None
        if connection is not None:
            _close_soon(connection)


_closing: set[asyncio.Task[None]] = set()


def _close_soon(connection: McpConnection) -> None:
    task = asyncio.get_running_loop().create_task(connection.close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


class _NotReachedError(ExecutionError):
    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


@functools.lru_cache(maxsize=1)
def _loop(pid: int) -> asyncio.AbstractEventLoop:
    """Return the process's event loop for requests, which runs in a thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=f"flink-skills-mcp-{pid}", daemon=True).start()
    return loop


async def _send(method: str, parameters: Mapping[str, Any], client: Any) -> Mapping[str, Any]:
    from mcp.shared.exceptions import MCPError
    from mcp.types import Request
    from pydantic import TypeAdapter, ValidationError

    request = Request[dict[str, Any], str](method=method, params=dict(parameters))
    try:
        result: dict[str, Any] = await client.session.send_request(request, TypeAdapter(dict[str, Any]))
    except MCPError as error:
        if error.code == _METHOD_NOT_FOUND:
            raise ExecutionError("the server declares the extension, and does not have the method") from None
        if error.code == _INVALID_PARAMS:
            raise ExecutionError(f"the server does not have it: {clean_line(error.message)[:300]}") from None
        raise
    except ValidationError as error:
        raise ExecutionError(f"the response is invalid ({error.error_count()} errors)") from None
    return result


async def _check_extension(client: Any) -> None:
    """Raise :class:`ConfigError` for a server without the extension. An older form is named."""
    from mcp.shared.exceptions import MCPError

    capabilities = client.server_capabilities
    if isinstance((getattr(capabilities, "extensions", None) or {}).get(EXTENSION), dict):
        return
    older = []
    if getattr(capabilities, "resources", None) is not None:
        with suppress(MCPError):
            older = [str(one.uri) for one in (await client.list_resources()).resources if _is_skill(str(one.uri))]
    if older:
        raise ConfigError(
            f"the server has skills in an older form, as resources such as {clean_line(older[0])[:120]}. The extension "
            f"{EXTENSION} is required. Update the server (FastMCP's skills provider has this form), or copy the skills "
            "to a folder, an archive or a repository"
        )
    raise ConfigError(
        f"the server does not declare the extension {EXTENSION}. Remove it from the sources of skills, or update it"
    )


def _is_skill(uri: str) -> bool:
    return uri.startswith("skill://")
