"""Plugins: folders whose manifest selects skills and lists MCP servers.

``plugin.json`` follows the Agent Plugins Specification 1.0.0 (agentplugins/agent-plugins-spec). The folders of vendors,
such as ``.claude-plugin``, contain a manifest or a marketplace file that lists plugins. No schema is fetched, and
only skills and MCP servers are used. Each fault has the narrowest effect: on a skill, a server, or the plugin.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from flink_skills.errors import near_misses
from flink_skills.skill.diagnostic import Report
from flink_skills.skill.file_rules import inside, is_generated, skill_file_in
from flink_skills.skill.server_files import (
    SERVER_FILES,
    PluginServer,
    is_usable,
    kind_of,
    read_json,
    schema_problems,
    shown_name,
    standard_servers,
    vendor_servers,
)
from flink_skills.skill.skill_limits import Limits

MANIFEST = "plugin.json"
VENDORS = frozenset({".claude-plugin", ".codex-plugin", ".cursor-plugin"})
_MARKETPLACE = "marketplace.json"
_NAME = re.compile(r"(?!.*(?:--|\.\.))[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_TEXTS = ("version", "description", "homepage", "repository", "license")
_FIELDS = ("$schema", "name", *_TEXTS, "author", "keywords", "extensions")
_AUTHOR = ("name", "email", "url")
# Other parts of plugins, as files and as fields of the manifest.
_PARTS = (
    *("agents", "commands", "hooks", "hooks.json", "rules", "output-styles", "outputStyles", "monitors", "themes"),
    *(".lsp.json", ".app.json", "lspServers", "apps", "bin", "settings.json", "channels", "dependencies", "userConfig"),
    "variables",
)
#: Files that make a folder a plugin, or list plugins.
MANIFESTS = (MANIFEST, *(f"{vendor}/{name}" for vendor in sorted(VENDORS) for name in (MANIFEST, _MARKETPLACE)))
_NAMESPACE = re.compile(r"[a-z]{2,}(?:\.[a-z0-9-]+)+")


class Plugin(NamedTuple):
    """A plugin that a search found.

    Attributes:
        name: The name, "" for a folder without plugin.
        root: The real path that its files must not leave.
        is_standard: True for a plugin of the standard, whose skills must conform to their specification.
        folders: The folders that can be skills.
        servers: The MCP servers without faults.
    """

    name: str
    root: str
    is_standard: bool
    folders: tuple[str, ...]
    servers: tuple[PluginServer, ...] = ()


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
    if _is_standard(folder, root, has_vendor=bool(manifests or lists)):
        for name in dict.fromkeys((*manifests, *lists)):
            report.add("G03", f"{name} is not used, because {MANIFEST} counts", path=os.path.join(folder, name))
        plugin = _standard(folder, root, report)
        return [] if plugin is None else [plugin]
    found = _listed(folder, root, os.path.join(folder, lists[0], _MARKETPLACE), report) if lists else None
    if found or not manifests:
        return found
    plugin = _of_vendor(folder, root, {}, report)
    return [] if plugin is None else [plugin]


def _is_standard(folder: str, root: str, *, has_vendor: bool) -> bool:
    """Return True if ``plugin.json`` in a folder is that of the standard.

    Vendors had files of this name before the standard, which requires ``$schema``.
    """
    path = os.path.join(folder, MANIFEST)
    data = read_json(path, root)[0] if os.path.lexists(path) else {}
    return os.path.lexists(path) and not (has_vendor and isinstance(data, dict) and "$schema" not in data)


def _standard(folder: str, root: str, report: Report) -> Plugin | None:
    """Return the plugin that ``plugin.json`` describes. None: it is rejected (section 5)."""
    path = os.path.join(folder, MANIFEST)
    data, reason = read_json(path, root)
    problems = [reason] if reason else list(_problems(data))
    if problems:
        report.add("G01", f"the plugin is rejected: {'; '.join(problems)}", path=path)
        return None
    for name in data:
        if name not in _FIELDS:
            near = near_misses(name, _FIELDS, limit=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            report.add("G02", f"the field {shown_name(name)} is unknown{meant}", path=path)
    if not isinstance(data.get("extensions", {}), dict):
        report.add("G02", "the field 'extensions' is not an object", path=path)
    _report_parts(folder, (*_PARTS, ".mcp.json"), report)
    skills = _children(os.path.join(folder, "skills"), root, report)
    return Plugin(data["name"], root, True, skills, tuple(standard_servers(folder, root, data, report)))


def _problems(data: Any) -> Iterator[str]:
    if not isinstance(data, dict):
        yield f"the manifest is {kind_of(data)} instead of an object"
        return
    yield from schema_problems(data, "plugin")
    name = data.get("name")
    if not isinstance(name, str) or len(name) > 64 or not _NAME.fullmatch(name):
        found = "missing" if "name" not in data else shown_name(name)
        yield f"'name' is {found} instead of 1 to 64 lowercase letters, digits, single '-' and '.'"
    for key in _TEXTS:
        if not isinstance(data.get(key, ""), str):
            yield f"{key!r} is {kind_of(data[key])} instead of a string"
    keywords = data.get("keywords", [])
    if not isinstance(keywords, list) or not all(isinstance(each, str) for each in keywords):
        yield "'keywords' is not an array of strings"
    author = data.get("author", {})
    if not isinstance(author, dict):
        yield f"'author' is {kind_of(author)} instead of an object"
    else:
        for key, value in author.items():
            if key not in _AUTHOR or not isinstance(value, str):
                yield f"'author' has {shown_name(key)}, and only the strings {', '.join(_AUTHOR)} are allowed"
    extensions = data.get("extensions", {})
    for key, value in extensions.items() if isinstance(extensions, dict) else ():
        if not isinstance(value, dict):
            yield f"{shown_name(key)} in 'extensions' is {kind_of(value)} instead of an object"


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


def _of_vendor(folder: str, root: str, entry: Mapping[str, Any], report: Report) -> Plugin | None:
    """Return the plugin in ``folder`` by the manifest of a vendor. None: it is rejected.

    ``entry`` is what a marketplace file has of it: its values take precedence.
    """
    data: dict[str, Any] = {}
    if os.path.lexists(path := os.path.join(folder, MANIFEST)):
        report.add("G03", f"{MANIFEST} is not used, because it has no $schema of the standard", path=path)
    for vendor in sorted(VENDORS):
        path = os.path.join(folder, vendor, MANIFEST)
        if not os.path.lexists(path):
            continue
        found, reason = read_json(path, root)
        if reason or not isinstance(found, dict):
            reason = reason or f"the manifest is {kind_of(found)} instead of an object"
            report.add("G01", f"the plugin is rejected: {reason}", path=path)
            return None
        if data:
            report.add("G03", f"{vendor} is not used, because another manifest counts", path=path)
        else:
            data = found
    for key in _PARTS:
        if {**data, **entry}.get(key):
            report.add("G03", f"{key!r} of the plugin is not used", path=folder)
    _report_parts(folder, _PARTS, report)
    name = entry.get("name") or data.get("name")
    if not is_usable(name) or not name:
        name = os.path.basename(root)
        report.add("G02", f"the plugin has no name, and is named {name!r} after its folder", path=folder)
    declared = [entry.get("mcpServers"), data.get("mcpServers")]
    servers = tuple(vendor_servers(folder, root, declared, name, report))
    listed = entry.get("skills", data.get("skills"))
    if listed is None:
        place = os.path.join(folder, "skills")
        # A plugin of one skill has it in its folder.
        own = (folder,) if not os.path.isdir(place) else ()
        return Plugin(name, root, False, (*own, *_children(place, root, report)), servers)
    return Plugin(name, root, False, tuple(_selected(folder, root, listed, report)), servers)


def _selected(folder: str, root: str, listed: Any, report: Report) -> Iterator[str]:
    """Yield the folders that a list of paths selects: folders of skills, or folders with such folders."""
    for path in [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else [listed]:
        place = os.path.normpath(os.path.join(folder, path)) if is_usable(path) and path else ""
        if not place or os.path.isabs(str(path)) or not inside(os.path.realpath(place), root):
            report.add("G04", f"'skills' names {shown_name(path)}, which is not a path inside the plugin", path=folder)
        elif not os.path.isdir(place):
            report.add("G04", f"'skills' names {shown_name(path)}, which does not exist", path=folder)
        elif os.path.lexists(os.path.join(place, "SKILL.md")):
            yield place
        else:
            yield from _children(place, root, report)


def _listed(folder: str, root: str, path: str, report: Report) -> list[Plugin]:
    """Return the plugins that a marketplace file lists, as far as they are in its folder."""
    data, reason = read_json(path, root)
    entries = data.get("plugins") if isinstance(data, dict) else None
    if reason or not isinstance(entries, list):
        report.add("G01", f"the plugins are rejected: {reason or 'there is no list of plugins'}", path=path)
        return []
    metadata = data.get("metadata")
    base = metadata.get("pluginRoot") if isinstance(metadata, dict) else None
    found = []
    for entry in entries:
        if not isinstance(entry, dict):
            report.add("G04", f"an entry of 'plugins' is {kind_of(entry)} instead of an object", path=path)
            continue
        name, source = shown_name(entry.get("name")), entry.get("source")
        if not isinstance(source, str) or "://" in source:
            report.add("G03", f"plugin {name} is elsewhere, and not fetched", path=path, fix="name it as a source")
            continue
        place = os.path.normpath(os.path.join(folder, base if isinstance(base, str) else "", source))
        real = os.path.realpath(place) if is_usable(place) else ""
        if not inside(real, root) or not os.path.isdir(place):
            report.add(
                "G04", f"plugin {name} has the source {shown_name(source)}, which is not a folder here", path=path
            )
            continue
        plugin = (
            _standard(place, real, report)
            if _is_standard(place, real, has_vendor=True)
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
        is_extension = _NAMESPACE.fullmatch(name) and name not in (MANIFEST, *SERVER_FILES)
        if name in parts or (is_extension and os.path.isdir(os.path.join(folder, name))):
            report.add("G03", f"{name} of the plugin is not used", path=os.path.join(folder, name))


def report_unselected(folder: str, plugins: Collection[Plugin], limits: Limits, report: Report) -> None:
    """Report the skills in a folder with plugins that no manifest selects."""
    selected = {os.path.realpath(path) for plugin in plugins for path in plugin.folders}
    found = []
    for place, folders, names in islice(os.walk(folder), limits.tree_directories):
        folders[:] = sorted(name for name in folders if not is_generated(name))
        if skill_file_in(names):
            folders.clear()  # a skill in a skill is one of its files
            if os.path.realpath(place) not in selected:
                found.append(os.path.relpath(place, folder))
    if found and plugins:
        more = f" and {len(found) - 5} more" if found[5:] else ""
        shown = ", ".join(map(shown_name, found[:5])) + more
        report.add("G03", f"skills that no manifest selects are not used: {shown}", path=folder)
