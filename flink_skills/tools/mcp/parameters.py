"""Connection parameters of an MCP server. Values may be references (``${env:NAME}``), read in the worker."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from flink_skills.endpoint import check_endpoint, redact
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.hints import none_is_default
from flink_skills.sources.secrets import has_references
from flink_skills.tools.commands.skill_env import name_problem

__all__ = [
    "TOOL_SET_KEYS",
    "URL_KEYS",
    "ConnectionParams",
    "McpClientCredentials",
    "McpStdioServerParameters",
    "SseConnectionParams",
    "StdioConnectionParams",
    "StreamableHTTPConnectionParams",
    "check_http_url",
    "connection_params",
    "own_server",
]

_log = logging.getLogger("flink_skills.mcp")

TOOL_SET_KEYS = ("prefix", "tools", "prompts", "resources", "interval", "required", "approve")
_OWN = (
    *("url", "headers", "command", "args", "env", "cwd", "auth", "transport", "timeout", "sse_read_timeout"),
    *("terminate_on_close", "sandbox"),
)
URL_KEYS = ("url", "httpUrl", "serverUrl")
_TRANSPORTS = {
    "stdio": "stdio",
    "sse": "sse",
    "http": "streamable-http",
    "streamablehttp": "streamable-http",
}
#: Keys that change nothing, with the reason why.
_WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("alwaysAllow", "autoApprove", "always_allow", "trust"),
        "tools need no approval unless 'approve' names them",
    ),
    **dict.fromkeys(("alwaysLoad", "autoStart", "autoConnect"), "each worker connects when the agent opens"),
    **dict.fromkeys(("callbackPort", "redirectUri", "redirectUris"), "a job has no browser"),
}
# For people who read the file.
_TEXTS = ("description", "name", "title", "icon", "gallery", "version", "note", "comment", "$comment", "//")
#: Keys that would change something, with what to write instead.
_REFUSED = {
    "envFile": "a job does not read this file; write each variable in 'env' as ${env:NAME} or ${file:/path}",
    **dict.fromkeys(
        ("excludeTools", "disabledTools", "disabled_tools"),
        "tools are selected and not excluded; name those that models can use in 'tools'",
    ),
    "headersHelper": "A job runs no program for headers. Write ${file:/path} in 'headers' for a token that is renewed.",
    "authProviderType": "a job has only client credentials; write 'auth' with client_id and client_secret",
    **dict.fromkeys(("sandboxEnabled", "dev", "debug", "watch", "roots"), "A job has no counterpart. Remove the key."),
}
_OAUTH = {
    "clientId": "client_id",
    "CLIENT_ID": "client_id",
    "clientSecret": "client_secret",
    "CLIENT_SECRET": "client_secret",
    "privateKey": "private_key",
    "scope": "scopes",
    "grantType": "grant_type",
    "grant": "grant_type",
    "tokenEndpointAuthMethod": "token_endpoint_auth_method",
    "signingAlgorithm": "signing_algorithm",
}
_OAUTH_WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("authorizationUrl", "authorizationEndpoint", "callbackPort", "redirectUri", "redirectUris"),
        "It needs a browser.",
    ),
    **dict.fromkeys(
        ("tokenUrl", "tokenEndpoint", "authServerMetadataUrl"), "the server names its authorization server itself"
    ),
}


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
    said = dict(value)
    grant = said.pop("grant_type", "client_credentials")
    if grant != "client_credentials":
        raise ConfigError(
            f"auth of an MCP server: the grant {str(grant)[:80]!r} needs a person with a browser, and a job has none; "
            "use client_credentials"
        )
    known = list(McpClientCredentials.__dataclass_fields__)
    for key in said:
        if key not in known:
            raise ConfigError(str(UnknownNameError("key", str(key), known, place="auth of an MCP server")))
    said.setdefault("client_id", "")
    return McpClientCredentials(**said)


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
        return _from_mapping(value)
    if all(hasattr(value, name) for name in ("command", "args", "env")):
        # The parameters of the package mcp, and of those that have copied them.
        cwd = str(getattr(value, "cwd", None) or "")
        server = McpStdioServerParameters(value.command, tuple(value.args), dict(value.env or {}), cwd)
        return StdioConnectionParams(server)
    raise ConfigError(
        f"an MCP server is described by a {type(value).__name__}: give StdioConnectionParams, SseConnectionParams, "
        "StreamableHTTPConnectionParams, a URL or a mapping with command or url"
    )


def _from_mapping(given: Mapping[str, Any]) -> ConnectionParams:
    value = own_server("an MCP server", given)
    if value is None:
        raise ConfigError("an MCP server is disabled: omit it where it is declared")
    transport = value.pop("transport", None)
    kind: Any = SseConnectionParams if transport == "sse" else StreamableHTTPConnectionParams
    if "command" in value:
        kind = StdioConnectionParams
    server = {key: value.pop(key) for key in ("command", "args", "env", "cwd") if key in value}
    known = [name for name in kind.__dataclass_fields__ if name != "server_params"]
    for key in [*server, *value]:
        if key in TOOL_SET_KEYS:
            raise ConfigError(f"{key!r} of an MCP server is an argument of @mcp_server or McpToolSet: give it there")
        if key not in known and not (kind is StdioConnectionParams and key in server):
            raise ConfigError(f"an MCP server with {'command' if 'command' in server else 'url'} has no {key!r}")
    if transport is not None and (transport == "stdio") != (kind is StdioConnectionParams):
        raise ConfigError(f"an MCP server of the transport {transport} has {'url' if 'url' in value else 'command'!r}")
    if kind is StdioConnectionParams:
        return StdioConnectionParams(McpStdioServerParameters(**server), **value)
    http: ConnectionParams = kind(**value)
    return http


def own_server(place: str, given: Mapping[str, Any], *, foreign: bool = False) -> dict[str, Any] | None:
    """Return a server's mapping with our keys only. Return None for a server that is disabled.

    Args:
        place: The server, for messages.
        given: The mapping, with our keys or those of other clients.
        foreign: True for a file of other clients, whose ``timeout`` has other units and another meaning.

    Raises :class:`ConfigError` for a key that is unknown or that a job cannot follow.

    >>> own_server("shop", {"type": "http", "httpUrl": "https://mcp.shop/mcp"})
    {'transport': 'streamable-http', 'url': 'https://mcp.shop/mcp'}
    """
    found: dict[str, Any] = {}
    disabled = False
    for key, value in given.items():
        if key in _REFUSED:
            raise ConfigError(f"{place}: {key}: {_REFUSED[key]}")
        if key in ("disabled", "enabled"):
            if not isinstance(value, bool):
                raise ConfigError(f"{place}: {key}: is {value!r}; write true or false")
            disabled |= value is (key == "disabled")
        elif key in _WITHOUT_EFFECT:
            _log.warning("%s: %s has no effect: %s", place, key, _WITHOUT_EFFECT[key])
        elif key == "timeout" and foreign:
            _log.warning(
                "%s: timeout has no effect: clients disagree on its unit. Set skills.tool.timeout for calls", place
            )
        elif key in ("type", "transport"):
            _put(found, "transport", _transport(place, key, value), place, key)
        elif key in URL_KEYS:
            _put(found, "url", value, place, key)
        elif key == "includeTools":
            _put(found, "tools", value, place, key)
        elif key == "oauth":
            if value is not False and value is not None:
                _put(found, "auth", _oauth(f"{place}: oauth", value), place, key)
        elif key in _OWN or key in TOOL_SET_KEYS:
            _put(found, key, value, place, key)
        elif key not in _TEXTS and not key.startswith("_"):
            known = [*_OWN, *TOOL_SET_KEYS, *URL_KEYS[1:], "type", "disabled", "oauth"]
            raise ConfigError(str(UnknownNameError("key", str(key), known, place=place)))
    if disabled:
        _log.info("%s is disabled, and omitted", place)
        return None
    command = found.get("command")
    if isinstance(command, list) and command:
        # As commands are elsewhere in YAML.
        found["command"], found["args"] = str(command[0]), [*map(str, command[1:]), *found.get("args", [])]
    if ("command" in found) == ("url" in found):
        raise ConfigError(f"{place}: write either 'command' for a program or 'url' for a service")
    return found


def _put(found: dict[str, Any], key: str, value: Any, place: str, written: str) -> None:
    if key in found and found[key] != value:
        raise ConfigError(f"{place}: {written}: {key!r} is given twice with different values; remove one of them")
    found[key] = value


def _transport(place: str, key: str, value: Any) -> str:
    plain = str(value).replace("-", "").replace("_", "").lower()
    if plain not in _TRANSPORTS:
        raise ConfigError(f"{place}: {key}: {value!r} is not supported; write stdio, sse or http (streamable HTTP)")
    return _TRANSPORTS[plain]


def _oauth(place: str, value: Any) -> dict[str, Any] | None:
    """Return what ``oauth`` says as our ``auth``."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: is {value!r}; write a mapping with clientId and clientSecret")
    said = dict(value)
    if said.pop("enabled", True) is False:
        return None
    for key, reason in _OAUTH_WITHOUT_EFFECT.items():
        if said.pop(key, None) is not None:
            _log.warning("%s: %s has no effect: %s", place, key, reason)
    found = {_OAUTH.get(key, key): of for key, of in said.items()}
    if "client_secret" not in found and "private_key" not in found:
        raise ConfigError(
            f"{place}: a job has no browser for a login; add the clientSecret or the privateKey "
            "of a client with the grant client_credentials, as ${NAME}, or write a token in 'headers'"
        )
    return found


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
        _log.warning(
            "env of an MCP server: %s are copies of variables of this process that its program cannot get, and omitted",
            ", ".join(sorted(omitted)),
        )
    return found


def _sandboxed(key: str, value: str) -> str:
    if problem := name_problem(key):
        raise ConfigError(f"env of an MCP server in the sandbox: {problem}")
    return value


_FOREIGN = re.compile(r"\$\{(?!(?:env|file):)([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?::-.*)?", re.DOTALL)


def _own_references(place: str, text: str) -> str:
    """Return ``text`` with ``${NAME}`` as ``${env:NAME}``. Raises :class:`ConfigError` for what no worker can resolve.

    >>> _own_references("url", "https://${HOST:-mcp.shop}/mcp")
    'https://${env:HOST:-mcp.shop}/mcp'
    """

    def own(match: re.Match[str]) -> str:
        if not _VARIABLE.fullmatch(match[1]):
            raise ConfigError(
                f"{place} of an MCP server: {match[0][:80]} cannot be resolved in a job; write ${{env:NAME}} for an "
                "environment variable of the TaskManagers, ${file:/path} for a file, or the value itself"
            )
        return f"${{env:{match[1]}}}"

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
