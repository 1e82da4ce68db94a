"""Opens the streams to an MCP server. The protocol on them is the package ``mcp``'s."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flink_skills.errors import ConfigError
from flink_skills.sources.secrets import expand, replacements
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.mcp.limited import limited_client
from flink_skills.tools.mcp.parameters import (
    ConnectionParams,
    SseConnectionParams,
    StdioConnectionParams,
    check_http_url,
)
from flink_skills.tools.mcp.programs import plain_program, sandboxed_program
from flink_skills.tools.mcp.said import SaidLines
from flink_skills.tools.mcp.unanswered import with_few_unanswered

if TYPE_CHECKING:
    from flink_skills.tools.commands.runner import ShellRunner

__all__ = ["TransportReports", "need_mcp", "transport"]

_MAX_EVENT = 16 << 20


def need_mcp() -> None:
    """Raises :class:`ConfigError` where the package ``mcp`` is not installed."""
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"MCP servers need the extra mcp: pip install 'flink-skills[mcp]' ({error})") from error


class TransportReports(NamedTuple):
    """What a transport observes.

    Attributes:
        hidden: Receives the values of references.
        said: Receives the stderr of a program.
        on_end: Receives the reason why there will be no more, from transports that have one.
        on_status: Receives the number and the text of each HTTP status of 400 and more.
    """

    hidden: HiddenValues
    said: SaidLines
    on_end: Callable[[str], None]
    on_status: Callable[[int, str], None]


@asynccontextmanager
async def transport(
    params: ConnectionParams,
    name: str,
    shell: ShellRunner | None,
    reports: TransportReports,
) -> AsyncIterator[Any]:
    """The read and the write stream of a connection.

    Args:
        params: How to reach the server.
        name: The server's name in messages.
        shell: Runs programs in the sandbox.
        reports: Receives what else the transport observes.

    Raises :class:`ConfigError` for a reference that cannot be read, and what the transports raise.
    """
    opened = _opened(params, name, shell, reports)
    async with with_few_unanswered(opened, reports.on_end) as streams:
        yield streams


def _opened(
    params: ConnectionParams,
    name: str,
    shell: ShellRunner | None,
    reports: TransportReports,
) -> AbstractAsyncContextManager[Any]:
    hidden, said, on_end, on_status = reports
    if isinstance(params, StdioConnectionParams):
        server = params.server_params
        env = {key: _expanded(value, hidden) for key, value in server.env.items()}
        command = (server.command, *server.args)
        if not params.sandbox:
            return plain_program(command, env, name=name, said=said, on_end=on_end)
        if shell is None:
            raise ConfigError(
                f"the MCP server {name!r} runs in the sandbox, and this job runs no commands: set "
                "skills.shell.enabled to true, or give StdioConnectionParams(sandbox=False)"
            )
        for key, value in env.items():
            if value != server.env[key]:
                shell.hidden.add(f"mcp.{name}.{key}", value)
        return sandboxed_program(command, env, name=name, shell=shell, said=said, on_end=on_end)
    url = _expanded(params.url, hidden)
    check_http_url(url, f"url of the MCP server {name}")
    headers = {key: _expanded(value, hidden) for key, value in params.headers.items()}
    if isinstance(params, SseConnectionParams):
        from mcp.client.sse import sse_client

        client = partial(limited_client, on_status=on_status)
        return sse_client(url, headers, params.timeout, params.sse_read_timeout, httpx_client_factory=client)
    return _streamable(url, headers, params, on_status)


@asynccontextmanager
async def _streamable(
    url: str, headers: Mapping[str, str], params: Any, on_status: Callable[[int, str], None]
) -> AsyncIterator[Any]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(params.timeout, read=params.sse_read_timeout)
    async with (
        limited_client(headers, timeout, on_status=on_status) as client,
        streamable_http_client(
            url,
            http_client=client,
            terminate_on_close=params.terminate_on_close,
            max_sse_event_size=_MAX_EVENT,
        ) as streams,
    ):
        yield streams


def _expanded(text: str, hidden: HiddenValues) -> str:
    """``text`` with the values of its references, which are hidden from now on."""
    for value, reference in replacements(text):
        hidden.add(reference, value)
    return expand(text)
