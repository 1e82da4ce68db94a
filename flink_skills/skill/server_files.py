"""MCP servers of plugins: ``mcp.json`` of the Agent Plugins Specification, and the files of vendors."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flink_skills.skill.diagnostic import Report
from flink_skills.skill.file_rules import inside, open_inside
from flink_skills.skill.text import clean_line

SERVER_FILES = (".mcp.json", "mcp.json")
_SCHEMAS = "https://agent-plugins.org/schemas"
#: Versions of the standard with the same rules.
_VERSIONS = ("1.0.0",)
_MAX_BYTES = 1 << 20
_MAX_SERVERS = 1_000
_STDIO = {"command": str, "args": list, "env": dict, "cwd": str}
_REMOTE = {"url": str, "headers": dict}
_ROOTS = ("PLUGIN_ROOT", "PLUGIN_DATA")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# No path and no argument of a program can contain these.
_UNUSABLE = re.compile("[\0\ud800-\udfff]")
_FIELD_VALUE = re.compile(r"[\x20-\x7e\x80-\xff]*(?<![ \t])")


class PluginServer(NamedTuple):
    """An MCP server of a plugin.

    Attributes:
        plugin: The name of the plugin.
        name: The name in the file of servers.
        settings: The entry of the file. That of a plugin of the standard is valid.
        root: The real path of the plugin.
        is_standard: True for a plugin of the standard.
        path: The file.
    """

    plugin: str
    name: str
    settings: Mapping[str, Any]
    root: str
    is_standard: bool
    path: str

    @property
    def full_name(self) -> str:
        """The name in options, such as ``ops:tickets``."""
        return f"{self.plugin}:{self.name}"


def not_started(full_name: str) -> str:
    """Return the message about a server that the job does not start."""
    return f"MCP server {shown_name(full_name)} is not started"


def standard_servers(folder: str, root: str, manifest: Mapping[str, Any], report: Report) -> Iterator[PluginServer]:
    """Yield the valid servers of ``mcp.json`` (section 7.2)."""
    path = os.path.join(folder, "mcp.json")
    if not os.path.lexists(path):
        return
    data, reason = read_json(path, root)
    problems = [reason] if reason else list(_file_problems(data, manifest["$schema"]))
    if problems:
        report.add("G04", f"the servers of the plugin are not usable: {'; '.join(problems)}", path=path)
        return
    yield from _usable_servers(data["mcpServers"], manifest["name"], root, path, report, is_standard=True)


def _usable_servers(
    servers: Mapping[str, Any], plugin: str, root: str, path: str, report: Report, *, is_standard: bool
) -> Iterator[PluginServer]:
    """Yield the servers without faults. All of them are reported: an option of the job decides which ones start."""
    for name, server in servers.items():
        found = PluginServer(plugin, name, server, root, is_standard, path)
        problems = list(_server_problems(server, root) if is_standard else _vendor_problems(server))
        if problems:
            shown = shown_name(found.full_name)
            report.add("G04", f"MCP server {shown} is not usable: {'; '.join(problems)}", path=path)
        else:
            fix = f"add {shown_name(found.full_name)} to skills.plugins.servers to start it"
            report.add("G03", not_started(found.full_name), path=path, fix=fix)
            yield found


def _file_problems(data: Any, schema: str) -> Iterator[str]:
    if not isinstance(data, dict):
        yield f"the file is {kind_of(data)} instead of an object"
        return
    yield from schema_problems(data, "mcp")
    found = data.get("$schema")
    if isinstance(found, str) and found.rpartition("/")[0] != schema.rpartition("/")[0]:
        yield "the version of '$schema' differs from the one of plugin.json"
    for key in data:
        if key not in ("$schema", "mcpServers"):
            yield f"the field {shown_name(key)} is unknown"
    servers = data.get("mcpServers")
    if not isinstance(servers, dict):
        yield "'mcpServers' is not an object"
    elif len(servers) > _MAX_SERVERS:
        yield f"the file has more than {_MAX_SERVERS:,} servers"


def _server_problems(server: Any, root: str) -> Iterator[str]:
    if not isinstance(server, dict):
        yield f"the server is {kind_of(server)} instead of an object"
        return
    kind = server.get("type")
    if kind not in ("stdio", "streamable-http", "sse"):
        shown = "missing" if "type" not in server else shown_name(kind)
        yield f"'type' is {shown}; write stdio, streamable-http or sse"
        return
    fields = _STDIO if kind == "stdio" else _REMOTE
    required = next(iter(fields))
    for key, value in server.items():
        if key != "type" and key not in fields:
            yield f"{shown_name(key)} is not a field of a server of type {kind}"
        elif key != "type" and not isinstance(value, fields[key]):
            yield f"{key!r} is {kind_of(value)}"
    values = {key: value for key, value in server.items() if key in fields and isinstance(value, fields[key])}
    if not values.get(required):
        yield f"{required!r} is missing"
        return
    problems = list(_string_problems(values))
    yield from problems or (_program_problems(values, root) if kind == "stdio" else _address_problems(values))


def _string_problems(server: Mapping[str, Any]) -> Iterator[str]:
    for key in ("env", "headers"):
        values = server.get(key, {})
        if not isinstance(values, dict) or not all(map(is_usable, (*values, *values.values()))):
            yield f"{key!r} is not an object of strings"
    args = server.get("args", [])
    if not isinstance(args, list) or not all(map(is_usable, args)):
        yield "'args' is not an array of strings"
    for key in ("command", "cwd", "url"):
        if not is_usable(server.get(key, "")):
            yield f"{key!r} contains characters that are not usable"


def _program_problems(server: Mapping[str, Any], root: str) -> Iterator[str]:
    command = server["command"]
    if command.startswith("./"):
        if not inside(os.path.realpath(os.path.join(root, command)), root):
            yield "'command' leaves the plugin"
    elif "/" in command or "\\" in command or command in (".", ".."):
        yield f"'command' is {shown_name(command)}; write the name of a program, or a path that begins with './'"
    for name in _ROOTS:
        if name in server.get("env", {}):
            yield f"'env' sets {name}, which the client sets"
    cwd = server.get("cwd")
    if cwd is None:
        return
    place = "${PLUGIN_ROOT}" + cwd[1:] if cwd.startswith("./") else cwd
    for name in _ROOTS:
        variable = f"${{{name}}}"
        if place == variable or place.startswith(f"{variable}/"):
            # The folder for data is empty: only '..' leaves it.
            base = root if name == "PLUGIN_ROOT" else "/data"
            if not inside(os.path.realpath(base + place.removeprefix(variable)), base):
                yield "'cwd' leaves the plugin" if name == "PLUGIN_ROOT" else "'cwd' leaves the folder for data"
            return
    yield f"'cwd' is {shown_name(cwd)}; begin it with './', '${{PLUGIN_ROOT}}/' or '${{PLUGIN_DATA}}/'"


def _address_problems(server: Mapping[str, Any]) -> Iterator[str]:
    try:
        parts = urlsplit(server["url"])
        host, user = parts.hostname or "", parts.username is not None or parts.password is not None
        parts.port  # noqa: B018 - raises for a port that is none
    except ValueError as error:
        yield f"'url' is not an address: {error}"
        return
    if parts.scheme not in ("http", "https") or not host:
        yield "'url' is not an absolute address of http or https"
    elif user or "#" in server["url"]:
        yield "'url' has user information or a fragment"
    elif parts.scheme == "http" and not _is_loopback(host):
        yield "'url' uses http, which is for this machine only; write https"
    headers = server.get("headers", {})
    if len({name.lower() for name in headers}) < len(headers):
        yield "'headers' has a name twice"
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or (isinstance(value, str) and not _FIELD_VALUE.fullmatch(value)):
            yield f"'headers' has {shown_name(name)}, which is not a valid header"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def vendor_servers(
    folder: str, root: str, declared: Collection[Any], plugin: str, report: Report
) -> Iterator[PluginServer]:
    """Yield the servers of a vendor's plugin, each name once.

    ``declared`` are objects of servers, paths of files with such objects, and lists of these. They precede the files
    with the usual names.
    """
    seen: set[str] = set()
    usual = [name for name in SERVER_FILES if os.path.lexists(os.path.join(folder, name))]
    for item in (*(each for of in declared for each in (of if isinstance(of, list) else [of])), *usual):
        path, found, reason = folder, item, ""
        if is_usable(item):
            path = os.path.normpath(os.path.join(folder, item))
            found, reason = read_json(path, root)
            # Some files consist of the object alone.
            found = found.get("mcpServers", found) if isinstance(found, dict) else found
        elif item is None:
            continue
        if reason or not isinstance(found, dict) or len(found) > _MAX_SERVERS:
            reason = reason or f"'mcpServers' is not an object of at most {_MAX_SERVERS:,} servers"
            report.add("G04", f"servers of the plugin are not usable: {reason}", path=path)
            continue
        new = {name: server for name, server in found.items() if name not in seen}
        seen.update(new)
        yield from _usable_servers(new, plugin, root, path, report, is_standard=False)


def _vendor_problems(server: Any) -> Iterator[str]:
    if not isinstance(server, dict):
        yield f"the server is {kind_of(server)} instead of an object"
    elif not any(isinstance(server.get(key), str) for key in ("command", "url", "httpUrl", "serverUrl")):
        yield "'command' or 'url' is missing"
    else:
        yield from _string_problems(server)


def is_usable(value: Any) -> bool:
    """Return True for a string that can be a path or an argument of a program."""
    return isinstance(value, str) and not _UNUSABLE.search(value)


def read_json(path: str, root: str) -> tuple[Any, str]:
    """Return the JSON value of a file in ``root``, and the reason if it cannot be read."""
    try:
        descriptor = open_inside(path, root)
        if descriptor is None:
            return None, "the file is a link that leaves the plugin"
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None, "the path is not a regular file"
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        return None, f"the file cannot be read: {error.strerror}"
    if len(content) > _MAX_BYTES:
        return None, f"the file has more than {_MAX_BYTES:,} bytes"
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=_no_constant), ""
    except (ValueError, RecursionError) as error:
        return None, f"the file is not JSON: {error}"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def schema_problems(data: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Yield the problem of ``$schema`` in a file of the kind ``plugin`` or ``mcp``."""
    known = [f"{_SCHEMAS}/{version}/{kind}.schema.json" for version in _VERSIONS]
    found = data.get("$schema")
    if found not in known:
        shown = "missing" if "$schema" not in data else f"{shown_name(found)}, which this release does not support"
        yield f"'$schema' is {shown}; supported: {', '.join(known)}"


def kind_of(value: Any) -> str:
    """Return the type of a JSON value, for messages."""
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def shown_name(value: Any) -> str:
    """Return a name of a file for messages, or its type if it is not a string."""
    return repr(clean_line(value)[:100]) if isinstance(value, str) else kind_of(value)
