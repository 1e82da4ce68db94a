"""Plugins: folders whose manifest selects skills and lists MCP servers.

``plugin.json`` follows the Agent Plugins Specification 1.0.0 (agentplugins/agent-plugins-spec). The folders of vendors,
such as ``.claude-plugin``, contain a manifest or a marketplace file that lists plugins. No schema is fetched, and
nothing of a plugin but its skills is used. Each fault has the narrowest effect: on a skill, a server, or the plugin.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flink_skills.errors import near_misses
from flink_skills.skill.diagnostic import Report
from flink_skills.skill.file_rules import inside, open_inside
from flink_skills.skill.text import clean_line

MANIFEST = "plugin.json"
VENDORS = frozenset({".claude-plugin", ".codex-plugin", ".cursor-plugin"})
_MARKETPLACE = "marketplace.json"
_SCHEMAS = "https://agent-plugins.org/schemas"
#: Versions of the standard with the same rules.
_VERSIONS = ("1.0.0",)
_MAX_BYTES = 1 << 20
_MAX_SHOWN = 20
_NAME = re.compile(r"(?!.*(?:--|\.\.))[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_TEXTS = ("version", "description", "homepage", "repository", "license")
_FIELDS = ("$schema", "name", *_TEXTS, "author", "keywords", "extensions")
_AUTHOR = ("name", "email", "url")
_STDIO = {"command": str, "args": list, "env": dict, "cwd": str}
_REMOTE = {"url": str, "headers": dict}
_ROOTS = ("PLUGIN_ROOT", "PLUGIN_DATA")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE = re.compile(r"[\x20-\x7e\x80-\xff]*(?<![ \t])")
# Other parts of plugins of vendors, as files and as fields of the manifest.
_PARTS = ("agents", "commands", "hooks", "hooks.json", "rules", "output-styles", "outputStyles", "monitors", "themes")
_PARTS_OF_VENDORS = (*_PARTS, ".mcp.json", ".lsp.json", ".app.json", "mcpServers", "lspServers", "apps")
_NAMESPACE = re.compile(r"[a-z]{2,}(?:\.[a-z0-9-]+)+")


class Plugin(NamedTuple):
    """A plugin that a search found.

    Attributes:
        name: The name, "" for a folder without plugin.
        root: The real path that its files must not leave.
        is_standard: True for a plugin of the standard, whose skills must conform to their specification.
        folders: The folders that can be skills.
    """

    name: str
    root: str
    is_standard: bool
    folders: tuple[str, ...]


def is_plugin(names: Collection[str], folders: Collection[str]) -> bool:
    """Return True if a folder with these files and folders is a plugin, or lists plugins.

    >>> is_plugin(["plugin.json"], []), is_plugin([], [".git", ".claude-plugin"]), is_plugin(["SKILL.md"], ["a"])
    (True, True, False)
    """
    return MANIFEST in names or not VENDORS.isdisjoint(folders)


def plugins_in(folder: str, report: Report) -> list[Plugin] | None:
    """Return the plugins of a folder for which :func:`is_plugin` is True.

    ``report`` receives the faults, and the parts that are not used. None: the folder has no manifest after all. An
    empty list: all of its plugins are rejected.
    """
    root = os.path.realpath(folder)
    vendors = [name for name in sorted(VENDORS) if os.path.isdir(os.path.join(folder, name))]
    manifests = [name for name in vendors if os.path.lexists(os.path.join(folder, name, MANIFEST))]
    lists = [name for name in vendors if os.path.lexists(os.path.join(folder, name, _MARKETPLACE))]
    if os.path.lexists(os.path.join(folder, MANIFEST)):
        for name in dict.fromkeys((*manifests, *lists)):
            report.add("G03", f"{name} is not used, because {MANIFEST} counts", path=os.path.join(folder, name))
        plugin = _standard(folder, root, report)
        return [] if plugin is None else [plugin]
    found = _listed(folder, root, os.path.join(folder, lists[0], _MARKETPLACE), report) if lists else None
    if found or not manifests:
        return found
    plugin = _of_vendor(folder, root, {}, report)
    return [] if plugin is None else [plugin]


def _read(path: str, root: str) -> tuple[Any, str]:
    """Return the JSON value of a file in ``root``, and the reason if it cannot be read."""
    try:
        descriptor = open_inside(path, root)
        if descriptor is None:
            return None, "the file is a link that leaves the plugin"
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


def _standard(folder: str, root: str, report: Report) -> Plugin | None:
    """Return the plugin that ``plugin.json`` describes. None: it is rejected (section 5)."""
    path = os.path.join(folder, MANIFEST)
    data, reason = _read(path, root)
    problems = [reason] if reason else list(_problems(data))
    if problems:
        report.add("G01", f"the plugin is rejected: {'; '.join(problems)}", path=path)
        return None
    for name in data:
        if name not in _FIELDS:
            near = near_misses(name, _FIELDS, limit=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            report.add("G02", f"the field {_shown(name)} is unknown{meant}", path=path)
    if not isinstance(data.get("extensions", {}), dict):
        report.add("G02", "the field 'extensions' is not an object", path=path)
    _report_servers(folder, root, data["$schema"], report)
    _report_parts(folder, _PARTS, report)
    return Plugin(data["name"], root, True, _children(os.path.join(folder, "skills"), root, report))


def _problems(data: Any) -> Iterator[str]:
    if not isinstance(data, dict):
        yield f"the manifest is {_kind(data)} instead of an object"
        return
    yield from _schema_problems(data, "plugin")
    name = data.get("name")
    if not isinstance(name, str) or len(name) > 64 or not _NAME.fullmatch(name):
        found = "missing" if "name" not in data else _shown(name)
        yield f"'name' is {found} instead of 1 to 64 lowercase letters, digits, single '-' and '.'"
    for key in _TEXTS:
        if not isinstance(data.get(key, ""), str):
            yield f"{key!r} is {_kind(data[key])} instead of a string"
    keywords = data.get("keywords", [])
    if not isinstance(keywords, list) or not all(isinstance(each, str) for each in keywords):
        yield "'keywords' is not an array of strings"
    author = data.get("author", {})
    if not isinstance(author, dict):
        yield f"'author' is {_kind(author)} instead of an object"
    else:
        for key, value in author.items():
            if key not in _AUTHOR or not isinstance(value, str):
                yield f"'author' has {_shown(key)}, and only the strings {', '.join(_AUTHOR)} are allowed"
    extensions = data.get("extensions", {})
    for key, value in extensions.items() if isinstance(extensions, dict) else ():
        if not isinstance(value, dict):
            yield f"{_shown(key)} in 'extensions' is {_kind(value)} instead of an object"


def _schema_problems(data: Mapping[str, Any], kind: str) -> Iterator[str]:
    known = [f"{_SCHEMAS}/{version}/{kind}.schema.json" for version in _VERSIONS]
    found = data.get("$schema")
    if found not in known:
        shown = "missing" if "$schema" not in data else f"{_shown(found)}, which this release does not support"
        yield f"'$schema' is {shown}; supported: {', '.join(known)}"


def _children(folder: str, root: str, report: Report) -> tuple[str, ...]:
    """Return the immediate children of a folder of skills that can be skills. Deeper folders do not count."""
    if not os.path.lexists(folder):
        return ()
    if not inside(os.path.realpath(folder), root) or not os.path.isdir(folder):
        name = os.path.basename(folder)
        if not inside(os.path.realpath(folder), root):
            report.add("G04", f"the skills are not read, because {name!r} leaves the plugin", path=folder)
        else:
            report.add("G04", f"the skills are not read, because {name!r} is not a directory", path=folder)
        return ()
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        report.add("D05", f"the folder cannot be read: {error.strerror}", path=folder)
        return ()
    found = []
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.isdir(path):
            continue
        if not inside(os.path.realpath(path), root):
            report.add("G04", "the skill is a link that leaves the plugin, and is skipped", path=path)
        else:
            found.append(path)
    return tuple(found)


def _report_servers(folder: str, root: str, schema: str, report: Report) -> None:
    """Report the servers of ``mcp.json`` (section 7.2): those that are wrong, and those that are not started."""
    path = os.path.join(folder, "mcp.json")
    if not os.path.lexists(path):
        return
    data, reason = _read(path, root)
    problems = [reason] if reason else list(_file_problems(data, schema))
    if problems:
        report.add("G04", f"the servers of the plugin are not usable: {'; '.join(problems)}", path=path)
        return
    for name, server in data["mcpServers"].items():
        problems = list(_server_problems(server, root))
        if problems:
            report.add("G04", f"server {_shown(name)} is not usable: {'; '.join(problems)}", path=path)
        else:
            report.add("G03", f"server {_shown(name)} is not started", path=path, fix="declare it with @mcp_server")


def _file_problems(data: Any, schema: str) -> Iterator[str]:
    if not isinstance(data, dict):
        yield f"the file is {_kind(data)} instead of an object"
        return
    yield from _schema_problems(data, "mcp")
    found = data.get("$schema")
    if isinstance(found, str) and found.rpartition("/")[0] != schema.rpartition("/")[0]:
        yield f"the version of '$schema' differs from the one of {MANIFEST}"
    for key in data:
        if key not in ("$schema", "mcpServers"):
            yield f"the field {_shown(key)} is unknown"
    if not isinstance(data.get("mcpServers"), dict):
        yield "'mcpServers' is not an object"


def _server_problems(server: Any, root: str) -> Iterator[str]:
    if not isinstance(server, dict):
        yield f"the server is {_kind(server)} instead of an object"
        return
    kind = server.get("type")
    if kind not in ("stdio", "streamable-http", "sse"):
        yield f"'type' is {'missing' if 'type' not in server else _shown(kind)}; write stdio, streamable-http or sse"
        return
    fields = _STDIO if kind == "stdio" else _REMOTE
    required = next(iter(fields))
    for key, value in server.items():
        if key != "type" and key not in fields:
            yield f"{_shown(key)} is not a field of a server of type {kind}"
        elif key != "type" and not isinstance(value, fields[key]):
            yield f"{key!r} is {_kind(value)}"
    values = {key: value for key, value in server.items() if key in fields and isinstance(value, fields[key])}
    if not values.get(required):
        yield f"{required!r} is missing"
        return
    for key in ("env", "headers"):
        if not all(isinstance(value, str) for value in values.get(key, {}).values()):
            yield f"{key!r} contains values other than strings"
    if not all(isinstance(value, str) for value in values.get("args", ())):
        yield "'args' contains values other than strings"
    yield from _program_problems(values, root) if kind == "stdio" else _address_problems(values)


def _program_problems(server: Mapping[str, Any], root: str) -> Iterator[str]:
    command = server["command"]
    if command.startswith("./"):
        if not inside(os.path.realpath(os.path.join(root, command)), root):
            yield "'command' leaves the plugin"
    elif "/" in command or "\\" in command or command in (".", ".."):
        yield f"'command' is {_shown(command)}; write the name of a program, or a path that begins with './'"
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
    yield f"'cwd' is {_shown(cwd)}; begin it with './', '${{PLUGIN_ROOT}}/' or '${{PLUGIN_DATA}}/'"


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
            yield f"'headers' has {_shown(name)}, which is not a valid header"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _of_vendor(folder: str, root: str, entry: Mapping[str, Any], report: Report) -> Plugin | None:
    """Return the plugin in ``folder`` by the manifest of a vendor. None: it is rejected.

    ``entry`` is what a marketplace file has of it: its values take precedence.
    """
    data: dict[str, Any] = {}
    for vendor in sorted(VENDORS):
        path = os.path.join(folder, vendor, MANIFEST)
        if not os.path.lexists(path):
            continue
        found, reason = _read(path, root)
        if reason or not isinstance(found, dict):
            reason = reason or f"the manifest is {_kind(found)} instead of an object"
            report.add("G01", f"the plugin is rejected: {reason}", path=path)
            return None
        if data:
            report.add("G03", f"{vendor} is not used, because another manifest counts", path=path)
        else:
            data = found
            for key in _PARTS_OF_VENDORS:
                if data.get(key):
                    report.add("G03", f"{key!r} of the plugin is not used", path=path)
    _report_parts(folder, _PARTS_OF_VENDORS, report)
    name = entry.get("name") or data.get("name")
    if not isinstance(name, str) or not name:
        name = os.path.basename(root)
        report.add("G02", f"the plugin has no name, and is named {name!r} after its folder", path=folder)
    listed = entry.get("skills", data.get("skills"))
    if listed is None:
        place = os.path.join(folder, "skills")
        # A plugin of one skill has it in its folder.
        own = (folder,) if not os.path.isdir(place) else ()
        return Plugin(name, root, False, (*own, *_children(place, root, report)))
    return Plugin(name, root, False, tuple(_selected(folder, root, listed, report)))


def _selected(folder: str, root: str, listed: Any, report: Report) -> Iterator[str]:
    """Yield the folders that a list of paths selects: folders of skills, or folders with such folders."""
    for path in [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else [listed]:
        place = os.path.normpath(os.path.join(folder, path)) if isinstance(path, str) and path else ""
        if not place or os.path.isabs(str(path)) or not inside(os.path.realpath(place), root):
            report.add("G04", f"'skills' names {_shown(path)}, which is not a path inside the plugin", path=folder)
        elif not os.path.isdir(place):
            report.add("G04", f"'skills' names {_shown(path)}, which does not exist", path=folder)
        elif os.path.lexists(os.path.join(place, "SKILL.md")):
            yield place
        else:
            yield from _children(place, root, report)


def _listed(folder: str, root: str, path: str, report: Report) -> list[Plugin]:
    """Return the plugins that a marketplace file lists, as far as they are in its folder."""
    data, reason = _read(path, root)
    entries = data.get("plugins") if isinstance(data, dict) else None
    if reason or not isinstance(entries, list):
        report.add("G01", f"the plugins are rejected: {reason or 'there is no list of plugins'}", path=path)
        return []
    metadata = data.get("metadata")
    base = metadata.get("pluginRoot") if isinstance(metadata, dict) else None
    found = []
    for entry in entries:
        if not isinstance(entry, dict):
            report.add("G04", f"an entry of 'plugins' is {_kind(entry)} instead of an object", path=path)
            continue
        name, source = _shown(entry.get("name")), entry.get("source")
        if not isinstance(source, str) or "://" in source:
            report.add("G03", f"plugin {name} is elsewhere, and not fetched", path=path, fix="name it as a source")
            continue
        place = os.path.normpath(os.path.join(folder, base if isinstance(base, str) else "", source))
        real = os.path.realpath(place)
        if not inside(real, root) or not os.path.isdir(place):
            report.add("G04", f"plugin {name} has the source {_shown(source)}, which is not a folder here", path=path)
            continue
        plugin = (
            _standard(place, real, report)
            if os.path.lexists(os.path.join(place, MANIFEST))
            else _of_vendor(place, real, entry, report)
        )
        if plugin is not None:
            found.append(plugin)
    return found


def _report_parts(folder: str, parts: Collection[str], report: Report) -> None:
    """Report the parts in a plugin's folder that nothing uses: those of vendors, and directories of extensions."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return  # reported where the folder is searched
    for name in names:
        if name in parts or (_NAMESPACE.fullmatch(name) and os.path.isdir(os.path.join(folder, name))):
            report.add("G03", f"{name} of the plugin is not used", path=os.path.join(folder, name))


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _shown(value: Any) -> str:
    return repr(clean_line(value)[:100]) if isinstance(value, str) else _kind(value)
