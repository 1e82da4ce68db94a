"""The keys of servers in ``.mcp.json`` files of other clients, in our words or refused with the reason."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from flink_skills.errors import ConfigError, UnknownNameError

__all__ = ["TOOL_SET_KEYS", "URL_KEYS", "own_server"]

_log = logging.getLogger("flink_skills.mcp")

TOOL_SET_KEYS = ("prefix", "tools", "prompts", "resources", "interval", "required", "approve")
_OWN = (
    "url",
    "headers",
    "command",
    "args",
    "env",
    "cwd",
    "auth",
    "transport",
    "timeout",
    "sse_read_timeout",
    "terminate_on_close",
    "sandbox",
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
