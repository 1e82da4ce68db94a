"""Servers as mappings: of our keys, of ``.mcp.json`` files of other clients, and of sections that name such files."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.tools.mcp.parameters import (
    ConnectionParams,
    McpStdioServerParameters,
    SseConnectionParams,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
    warn_once,
)

_log = logging.getLogger("flink_skills.mcp")

TOOL_SET_KEYS = ("prefix", "tools", "prompts", "resources", "interval", "required", "approve", "skills")
_OWN = (
    *("url", "headers", "command", "args", "env", "cwd", "auth", "transport", "timeout", "sse_read_timeout"),
    *("terminate_on_close", "sandbox"),
)
_URL_KEYS = ("url", "httpUrl", "serverUrl", "baseUrl")
#: Our names of other keys.
_SAME = {**dict.fromkeys(_URL_KEYS, "url"), "includeTools": "tools", "environment": "env"}
_TRANSPORTS = {
    "stdio": "stdio",
    "local": "stdio",
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
_TEXTS = (
    *("description", "name", "title", "icon", "gallery", "version", "note", "comment", "$comment", "//"),
    *("source", "tags", "logoUrl", "provider", "providerUrl", "registryUrl"),
)
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
_KINDS = (StdioConnectionParams, SseConnectionParams, StreamableHTTPConnectionParams)
_MAX_BYTES = 1 << 20
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_WRAPPERS = ("mcpServers", "servers", "context_servers")


def connection_params(value: Any) -> ConnectionParams:
    """Return connection parameters.

    ``value`` is parameters, those of a program alone, a URL (streamable HTTP), or a mapping with ``command`` or
    ``url``. Raises :class:`ConfigError` for anything else.

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


def _from_mapping(mapping: Mapping[str, Any]) -> ConnectionParams:
    value = own_server("an MCP server", mapping)
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


def own_server(place: str, mapping: Mapping[str, Any], *, foreign: bool = False) -> dict[str, Any] | None:
    """Return a server's mapping with our keys only. Return None for a server that is disabled.

    Args:
        place: The server, for messages.
        mapping: The mapping, with our keys or those of other clients.
        foreign: True for a file of other clients, whose ``timeout`` has other units and another meaning.

    Raises :class:`ConfigError` for a key that is unknown or that a job cannot follow.

    >>> own_server("shop", {"type": "http", "httpUrl": "https://mcp.shop/mcp"})
    {'transport': 'streamable-http', 'url': 'https://mcp.shop/mcp'}
    """
    found: dict[str, Any] = {}
    disabled = False
    for key, value in mapping.items():
        if foreign and (value is None or value == ""):
            continue  # a field that a form of the client left empty
        if key in _REFUSED:
            if value or not foreign:
                raise ConfigError(f"{place}: {key}: {_REFUSED[key]}")
        elif key in ("disabled", "enabled", "isActive"):
            if not isinstance(value, bool):
                raise ConfigError(f"{place}: {key}: is {value!r}; write true or false")
            disabled |= value is (key == "disabled")
        elif key in _WITHOUT_EFFECT:
            warn_once(f"{place}: {key} has no effect: {_WITHOUT_EFFECT[key]}")
        elif key == "timeout" and foreign:
            warn_once(
                f"{place}: timeout has no effect: clients disagree on its unit. Set skills.tool.timeout for calls"
            )
        elif key in ("type", "transport", "transportType"):
            if value != "remote":  # the URL says so
                _put(found, "transport", _transport(place, key, value), place, key)
        elif key in _SAME:
            _put(found, _SAME[key], value, place, key)
        elif key == "oauth":
            if value is not False and value is not None:
                _put(found, "auth", _oauth(f"{place}: oauth", value), place, key)
        elif key in _OWN or key in TOOL_SET_KEYS:
            _put(found, key, value, place, key)
        elif key not in _TEXTS and not key.startswith("_"):
            known = [*_OWN, *TOOL_SET_KEYS, *_URL_KEYS[1:], "type", "disabled", "oauth"]
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
        raise ConfigError(f"{place}: {written}: {key!r} is set twice with different values; remove one of them")
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
    settings = dict(value)
    if settings.pop("enabled", True) is False:
        return None
    for key, reason in _OAUTH_WITHOUT_EFFECT.items():
        if settings.pop(key, None) is not None:
            warn_once(f"{place}: {key} has no effect: {reason}")
    found = {_OAUTH.get(key, key): of for key, of in settings.items()}
    if "client_secret" not in found and "private_key" not in found:
        raise ConfigError(
            f"{place}: a job has no browser for a login; add the clientSecret or the privateKey "
            "of a client with the grant client_credentials, as ${NAME}, or write a token in 'headers'"
        )
    return found


def servers_of(section: Mapping[str, Any], folder: Path, place: str = "mcp_servers") -> dict[str, dict[str, Any]]:
    """Return the servers of a section by name, with those of the files and the objects that it contains.

    ``file`` names a file of other clients, relative to ``folder``, and ``mcpServers`` is the object that such files
    have. Other entries are servers. An entry with the name of a server of the file adds our keys to it.

    Raises :class:`ConfigError`, which names the file, the server and the key.

    >>> servers_of({"mcpServers": {"shop": {"url": "https://mcp.shop/mcp", "disabled": True}}}, Path("."))
    {}
    """
    foreign: dict[str, tuple[str, Any]] = {}
    own: dict[str, Any] = {}
    for key, value in section.items():
        if key == "file" and isinstance(value, str):
            path = folder / value
            servers = _file_servers(path)
            where = str(path)
        elif key == "mcpServers":
            servers, where = _mapping(value, f"{place}.{key}"), f"{place}.{key}"
        else:
            own[str(key)] = value
            continue
        for name, server in servers.items():
            if name in foreign:
                raise ConfigError(f"{where}: server {name!r}: it is in {foreign[name][0]} as well; remove one of them")
            foreign[str(name)] = (where, server)
    found: dict[str, dict[str, Any]] = {}
    for name, (where, server) in foreign.items():
        at = f"{where}: server {name!r}"
        settings = own_server(at, _mapping(server, at), foreign=True)
        added = own.pop(name, None)
        if settings is None:
            continue
        settings |= _mapping({} if added is None else added, f"{place}.{name}")
        try:
            connection_params({key: value for key, value in settings.items() if key not in TOOL_SET_KEYS})
        except ConfigError as error:
            raise ConfigError(f"{at}: {error}") from None
        found[name] = settings
    for name, server in own.items():
        settings = own_server(f"{place}.{name}", _mapping(server, f"{place}.{name}"))
        if settings is not None:
            found[name] = settings
    return found


def _file_servers(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); write its path from the job file") from None
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_BYTES:,} bytes; it should have servers only")
    try:
        data = json.loads(_plain_json(content.decode("utf-8-sig")), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error}); correct it") from None
    data = _mapping(data, str(path))
    for wrapper in _WRAPPERS:
        if wrapper in data:
            others = [key for key in data if key not in (wrapper, "$schema")]
            if others:
                warn_once(f"{path}: {', '.join(others)}: not read, because only {wrapper!r} has servers")
            return _mapping(data[wrapper], f"{path}: {wrapper}")
    if isinstance(data.get("mcp"), Mapping):
        return _mapping(data["mcp"].get("servers", data["mcp"]), f"{path}: mcp")
    if data and all(isinstance(of, Mapping) and {"command", *_URL_KEYS} & of.keys() for of in data.values()):
        return data
    raise ConfigError(f"{path} has no servers; write them in the object 'mcpServers'")


def _plain_json(text: str) -> str:
    """Return JSON without comments and trailing commas, as editors write it. Lines and columns do not move.

    >>> _plain_json('{"a": "//", // b')
    '{"a": "//",     '
    """
    for ignored in (_COMMENT, _TRAILING_COMMA):
        text = ignored.sub(lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\n]", " ", found[0]), text)
    return text


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key!r}")
        found[key] = value
    return found


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: is a {type(value).__name__}; write a mapping of names and values")
    return value
