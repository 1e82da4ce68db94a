"""Connection parameters of an MCP server. Values may be references (``${env:NAME}``), read in the worker."""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Union

from flink_skills.endpoint import check_endpoint, redact
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.hints import none_is_default
from flink_skills.sources.secrets import has_references
from flink_skills.tools.commands.hidden import name_problem

_log = logging.getLogger("flink_skills.mcp")


class LiteralText(str):
    """A string whose references are not replaced, such as one that a plugin contains."""


@none_is_default
@dataclass(frozen=True)
class McpStdioServerParameters:
    """A program that is an MCP server on its stdin and stdout. It gets ``env`` and the few variables that every command
    has, and no other of the worker's. ``cwd`` is an absolute path; default: its workspace, or the worker's folder."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""

    def __post_init__(self) -> None:
        words = (
            None if isinstance(self.args, str) or not isinstance(self.args, Sequence) else [self.command, *self.args]
        )
        if not self.command or words is None or not all(isinstance(word, str) for word in words):
            raise ConfigError("an MCP server on stdio has a command, a string, and args, a list of strings")
        _check_texts("env", self.env)
        if not isinstance(self.cwd, str) or not (self.cwd == "" or self.cwd.startswith(("/", "${"))):
            raise ConfigError(f"cwd={self.cwd!r} of an MCP server: write an absolute path on the TaskManagers")
        _set(self, "command", _own_references("command", self.command))
        _set(self, "args", tuple(_own_references("args", word) for word in self.args))
        _set(self, "env", _usable_variables(self.env, lambda key, of: _own_references(f"env.{key}", of)))
        _set(self, "cwd", _own_references("cwd", self.cwd))


@dataclass(frozen=True)
class PluginProgram(McpStdioServerParameters):
    """The program of a server of a plugin.

    ``workspace`` is the key of the workspace that the servers of the plugin share, ``folders`` are the folders to
    create there. The program can read ``root``, the folder of the plugin.
    """

    workspace: str = ""
    folders: tuple[Path, ...] = ()
    root: str = ""


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
        if self.sandbox and isinstance(self.server_params, McpStdioServerParameters):
            env = _usable_variables(self.server_params.env, _sandboxed)
            _set(self, "server_params", replace(self.server_params, env=env))

    @property
    def shown(self) -> str:
        """For logs."""
        return f"program {self.server_params.command}"


@none_is_default
@dataclass(frozen=True)
class McpClientCredentials:
    """The grant *client credentials* of OAuth, for a server whose clients are machines.

    The worker asks the authorization server of the MCP server for a token, and for another one when it expires. One of
    ``client_secret`` and ``private_key`` is needed, by reference.

    Args:
        client_id: The id of the client.
        client_secret: ``${env:NAME}`` or ``${file:/path}`` of its secret.
        private_key: The reference of a private key (PEM) that signs a JWT instead of a secret.
        scopes: The scopes to ask for. Empty: those that the server names.
        issuer: The URL of the authorization server. The credentials are sent to no other one.
        token_endpoint_auth_method: ``client_secret_basic`` or ``client_secret_post``.
        signing_algorithm: The algorithm of the JWT.

    Raises :class:`ConfigError` for other grants, and for a secret that is written literally.

    >>> McpClientCredentials("stock-agent", "${env:STOCK_SECRET}", issuer="https://login.example.com").client_id
    'stock-agent'
    """

    client_id: str
    client_secret: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    scopes: Sequence[str] = ()
    issuer: str = ""
    token_endpoint_auth_method: str = "client_secret_basic"  # noqa: S105 - a method
    signing_algorithm: str = "RS256"

    def __post_init__(self) -> None:
        scopes = self.scopes.split() if isinstance(self.scopes, str) else self.scopes
        texts = [self.client_id, self.client_secret, self.private_key, self.issuer, self.signing_algorithm]
        if not all(isinstance(text, str) for text in [*texts, *scopes]) or not self.client_id:
            raise ConfigError("auth of an MCP server: client_id is missing, or a value is of another type than string")
        if bool(self.client_secret) == bool(self.private_key):
            raise ConfigError("auth of an MCP server: write client_secret or private_key, as ${env:NAME}")
        if self.token_endpoint_auth_method not in ("client_secret_basic", "client_secret_post"):
            raise ConfigError(
                f"auth of an MCP server: token_endpoint_auth_method {self.token_endpoint_auth_method!r} is not "
                "supported; write client_secret_basic or client_secret_post, or use private_key for a signed JWT"
            )
        if self.issuer:
            check_http_url(self.issuer, "issuer in auth of an MCP server")
        _set(self, "scopes", tuple(scopes))
        for name in ("client_id", "client_secret", "private_key"):
            _set(self, name, _own_references(f"auth.{name}", getattr(self, name)))
        for name in ("client_secret", "private_key"):
            if getattr(self, name) and not has_references(getattr(self, name)):
                raise ConfigError(
                    f"auth of an MCP server: {name} is written literally; write ${{env:NAME}} or ${{file:/path}}"
                )


def _credentials(value: Any) -> McpClientCredentials | None:
    if value is None or isinstance(value, McpClientCredentials):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"auth of an MCP server is a {type(value).__name__}: give McpClientCredentials or a mapping")
    settings = dict(value)
    grant = settings.pop("grant_type", "client_credentials")
    if grant != "client_credentials":
        raise ConfigError(
            f"auth of an MCP server: the grant {str(grant)[:80]!r} needs a person with a browser, and a job has none; "
            "use client_credentials"
        )
    known = list(McpClientCredentials.__dataclass_fields__)
    for key in settings:
        if key not in known:
            raise ConfigError(str(UnknownNameError("key", str(key), known, place="auth of an MCP server")))
    settings.setdefault("client_id", "")
    return McpClientCredentials(**settings)


@none_is_default
@dataclass(frozen=True)
class SseConnectionParams:
    """A server behind HTTP with server-sent events. ``timeout`` (seconds) is for connecting and each request's begin,
    ``sse_read_timeout`` for the silence between two events."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 5.0
    sse_read_timeout: float = 300.0
    auth: McpClientCredentials | None = None

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
    auth: McpClientCredentials | None = None

    def __post_init__(self) -> None:
        _check_http(self)

    @property
    def shown(self) -> str:
        """For logs."""
        return redact(self.url)


ConnectionParams = Union[StdioConnectionParams, SseConnectionParams, StreamableHTTPConnectionParams]


def _set(params: Any, name: str, value: Any) -> None:
    object.__setattr__(params, name, value)


def _usable_variables(env: Mapping[str, str], used: Callable[[str, str], str]) -> dict[str, str]:
    """Return ``env`` with the values of ``used``. Variables that it refuses are omitted if they are copies of the
    process's own, as in ``os.environ.copy()``. Raises :class:`ConfigError` for all others in one message."""
    found: dict[str, str] = {}
    omitted, problems = [], []
    for key, value in env.items():
        try:
            found[key] = used(key, value)
            if os.environ.get(key) != value or (found[key] == value and not has_references(value)):
                continue
            del found[key]  # literal text of a shell
        except ConfigError as error:
            if os.environ.get(key) != value:
                problems.append(str(error))
                continue
        omitted.append(key)
    if problems:
        raise ConfigError("; ".join(problems))
    if omitted:
        warn_once(
            f"env of an MCP server: {', '.join(sorted(omitted))} are copies of variables of this process that its "
            "program cannot get, and omitted"
        )
    return found


def _sandboxed(key: str, value: str) -> str:
    if problem := name_problem(key):
        raise ConfigError(f"env of an MCP server in the sandbox: {problem}")
    return value


@functools.lru_cache(maxsize=1_000)
def warn_once(message: str) -> None:
    """Log a warning one time: the client, the checks and the worker each read a declaration."""
    _log.warning("%s", message)


# Variables of shells, of Windows, of templates and of other clients.
_UNBRACED = re.compile(r"(?<![\w$])\$[A-Z_][A-Z0-9_]+(?!\w)|%[A-Z_][A-Z0-9_]+%|\{\{[^{}]*\}\}|(?<!\$)\{env:[^{}]*\}")
_FOREIGN = re.compile(r"\$\{(?!(?:env|file):)([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?::-.*)?", re.DOTALL)


def _own_references(place: str, text: str) -> str:
    """Return ``text`` with ``${NAME}`` as ``${env:NAME}``. Raises :class:`ConfigError` for what no worker can resolve.

    A variable in another form, such as ``$NAME``, is a warning. It does not show the text, which can be a secret.

    >>> _own_references("url", "https://${HOST:-mcp.shop}/mcp")
    'https://${env:HOST:-mcp.shop}/mcp'
    """
    if isinstance(text, LiteralText):
        return text

    def own(match: re.Match[str]) -> str:
        if not _VARIABLE.fullmatch(match[1]):
            raise ConfigError(
                f"{place} of an MCP server: {match[0][:80]} cannot be resolved in a job; write ${{env:NAME}} for an "
                "environment variable of the TaskManagers, ${file:/path} for a file, or the value itself"
            )
        return f"${{env:{match[1]}}}"

    is_copy = os.environ.get(place.removeprefix("env.")) == text
    # An argument can be a script, whose variables the shell resolves.
    has_variable = _UNBRACED.fullmatch(text) if place == "args" else _UNBRACED.search(text)
    if has_variable and not is_copy:
        warn_once(
            f"{place} of an MCP server contains a variable in another form than ${{NAME}}, which is passed literally; "
            "write ${NAME} for an environment variable of the TaskManagers"
        )
    return _FOREIGN.sub(own, text)


def _check_http(params: SseConnectionParams | StreamableHTTPConnectionParams) -> None:
    if isinstance(params.url, str):
        _set(params, "url", _own_references("url", params.url))
    # The worker replaces a leading reference, and checks the result.
    if not (isinstance(params.url, str) and params.url.startswith("${")):
        check_http_url(params.url, "url of an MCP server", references=True)
    _check_texts("headers", params.headers)
    _set(params, "headers", {key: _own_references(f"headers.{key}", of) for key, of in params.headers.items()})
    _set(params, "auth", _credentials(params.auth))
    if params.auth is not None and any(key.lower() == "authorization" for key in params.headers):
        raise ConfigError("an MCP server has auth and a header Authorization: remove one of them")
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
