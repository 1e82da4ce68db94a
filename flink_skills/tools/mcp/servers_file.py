"""Servers of ``.mcp.json`` files, and of sections that name such files."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flink_skills.errors import ConfigError
from flink_skills.tools.mcp.mcp_json import TOOL_SET_KEYS, URL_KEYS, own_server
from flink_skills.tools.mcp.parameters import connection_params

__all__ = ["servers_of"]

_log = logging.getLogger("flink_skills.mcp")

_MAX_BYTES = 1 << 20
_WRAPPERS = ("mcpServers", "servers")


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
        said = own_server(at, _mapping(server, at), foreign=True)
        added = own.pop(name, None)
        if said is None:
            continue
        said |= _mapping({} if added is None else added, f"{place}.{name}")
        try:
            connection_params({key: value for key, value in said.items() if key not in TOOL_SET_KEYS})
        except ConfigError as error:
            raise ConfigError(f"{at}: {error}") from None
        found[name] = said
    for name, server in own.items():
        said = own_server(f"{place}.{name}", _mapping(server, f"{place}.{name}"))
        if said is not None:
            found[name] = said
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
        data = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error}); remove comments and trailing commas") from None
    data = _mapping(data, str(path))
    for wrapper in _WRAPPERS:
        if wrapper in data:
            others = [key for key in data if key not in (wrapper, "$schema")]
            if others:
                _log.warning("%s: %s: not read, because only %r has servers", path, ", ".join(others), wrapper)
            return _mapping(data[wrapper], f"{path}: {wrapper}")
    if isinstance(data.get("mcp"), Mapping) and "servers" in data["mcp"]:
        return _mapping(data["mcp"]["servers"], f"{path}: mcp.servers")
    if data and all(isinstance(of, Mapping) and {"command", *URL_KEYS} & of.keys() for of in data.values()):
        return data
    raise ConfigError(f"{path} has no servers; write them in the object 'mcpServers'")


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
