"""Connection parameters of an MCP server. Values may be references (``${env:NAME}``), read in the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from flink_skills.endpoint import check_endpoint, redact
from flink_skills.errors import ConfigError
from flink_skills.hints import none_is_default

__all__ = [
    "ConnectionParams",
    "McpStdioServerParameters",
    "SseConnectionParams",
    "StdioConnectionParams",
    "StreamableHTTPConnectionParams",
    "check_http_url",
    "connection_params",
]


@none_is_default
@dataclass(frozen=True)
class McpStdioServerParameters:
    """A program that is an MCP server on its stdin and stdout. It gets ``env`` and the few variables that every command
    has, and no other of the worker's."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        words = (
            None if isinstance(self.args, str) or not isinstance(self.args, Sequence) else [self.command, *self.args]
        )
        if not self.command or words is None or not all(isinstance(word, str) for word in words):
            raise ConfigError("an MCP server on stdio has a command, a string, and args, a list of strings")
        _check_texts("env", self.env)


@none_is_default
@dataclass(frozen=True)
class StdioConnectionParams:
    """A program, started once by each worker. ``timeout`` (seconds) is for its start.

    It runs in the sandbox of commands, in a workspace of its own and without network, unless ``sandbox`` is False: then
    it is a plain process that may do what the worker may.
    """

    server_params: McpStdioServerParameters
    timeout: float = 30.0
    sandbox: bool = True

    def __post_init__(self) -> None:
        _check_seconds("timeout", self.timeout)
        if not isinstance(self.sandbox, bool):
            raise ConfigError("sandbox of an MCP server is true or false")

    @property
    def shown(self) -> str:
        """For logs."""
        return f"program {self.server_params.command}"


@none_is_default
@dataclass(frozen=True)
class SseConnectionParams:
    """A server behind HTTP with server-sent events. ``timeout`` (seconds) is for connecting and each request's begin,
    ``sse_read_timeout`` for the silence between two events."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 5.0
    sse_read_timeout: float = 300.0

    def __post_init__(self) -> None:
        _check_http(self)

    @property
    def shown(self) -> str:
        """For logs."""
        return redact(self.url)


@none_is_default
@dataclass(frozen=True)
class StreamableHTTPConnectionParams:
    """A server behind streamable HTTP; ``terminate_on_close`` tells it when the worker goes. Times as in
    :class:`SseConnectionParams`."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 5.0
    sse_read_timeout: float = 300.0
    terminate_on_close: bool = True

    def __post_init__(self) -> None:
        _check_http(self)

    @property
    def shown(self) -> str:
        """For logs."""
        return redact(self.url)


ConnectionParams = Union[StdioConnectionParams, SseConnectionParams, StreamableHTTPConnectionParams]
_KINDS = (StdioConnectionParams, SseConnectionParams, StreamableHTTPConnectionParams)


def connection_params(value: Any) -> ConnectionParams:
    """From parameters, those of a program alone, a URL (streamable HTTP) or a mapping with ``command`` or ``url``.

    Raises :class:`ConfigError` for anything else.

    >>> connection_params("http://mcp:8000/mcp").timeout
    5.0
    >>> connection_params({"command": "mcp-server-time"}).server_params.command
    'mcp-server-time'
    """
    if isinstance(value, _KINDS):
        return value
    if isinstance(value, McpStdioServerParameters):
        return StdioConnectionParams(value)
    if isinstance(value, str) and value.startswith(("http://", "https://", "${")):
        return StreamableHTTPConnectionParams(value)
    if isinstance(value, Mapping):
        return _from_mapping(dict(value))
    if all(hasattr(value, name) for name in ("command", "args", "env")):
        # The parameters of the package mcp, and of those that have copied them.
        return StdioConnectionParams(McpStdioServerParameters(value.command, tuple(value.args), dict(value.env or {})))
    raise ConfigError(
        f"an MCP server is described by a {type(value).__name__}: give StdioConnectionParams, SseConnectionParams, "
        "StreamableHTTPConnectionParams, a URL or a mapping with command or url"
    )


def _from_mapping(value: dict[str, Any]) -> ConnectionParams:
    transport = value.pop("transport", None)
    try:
        if "command" in value and transport in (None, "stdio"):
            server = {key: value.pop(key) for key in ("command", "args", "env") if key in value}
            return StdioConnectionParams(McpStdioServerParameters(**server), **value)
        if transport == "sse":
            return SseConnectionParams(**value)
        if transport in (None, "streamable-http", "streamable_http", "http"):
            return StreamableHTTPConnectionParams(**value)
    except TypeError as error:
        raise ConfigError(f"an MCP server's mapping does not fit: {error}") from None
    raise ConfigError(f"transport {transport!r} of an MCP server is not known; write stdio, sse or streamable-http")


def _check_http(params: SseConnectionParams | StreamableHTTPConnectionParams) -> None:
    # The worker replaces a leading reference, and checks the result.
    if not (isinstance(params.url, str) and params.url.startswith("${")):
        check_http_url(params.url, "url of an MCP server", references=True)
    _check_texts("headers", params.headers)
    _check_seconds("timeout", params.timeout)
    _check_seconds("sse_read_timeout", params.sse_read_timeout)


def check_http_url(url: object, name: str, *, references: bool = False) -> None:
    """Check the address of a server. Raises :class:`ConfigError`, which does not show its secrets."""
    check_endpoint(url, name, "http://localhost:8000/mcp", references=references)


def _check_texts(name: str, value: Any) -> None:
    # The values are not shown: they may be secret.
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} of an MCP server is a {type(value).__name__}: write a mapping of names and strings")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ConfigError(f"{name} of an MCP server: {key!r} is a {type(text).__name__}: write a string, in quotes")


def _check_seconds(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ConfigError(f"{name}={value!r} of an MCP server: write seconds, more than 0")
