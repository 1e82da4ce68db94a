"""MCP servers of plugins as tool sets, with the folders and variables that the job grants."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill.file_rules import inside
from flink_skills.skill.server_files import PluginServer
from flink_skills.tools.mcp.mcp_tool_set import McpToolSet
from flink_skills.tools.mcp.parameters import (
    ConnectionParams,
    LiteralText,
    PluginProgram,
    SseConnectionParams,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from flink_skills.tools.mcp.server_mapping import own_server

if TYPE_CHECKING:
    from flink_skills.tools.commands.runner import ShellRunner

_KEYS = frozenset({"transport", "command", "args", "env", "cwd", "url", "headers"})
# Vendors use other names, such as ${CLAUDE_PLUGIN_ROOT}, and variables, such as ${TOKEN:-none}.
_VARIABLE = re.compile(
    r"\$\{(?:(?:[A-Z]+_)?PLUGIN_(?P<folder>ROOT|DATA)|(?:env:)?(?P<name>[A-Za-z_]\w*))(?::-(?P<default>[^{}]*))?\}"
)


def plugin_tool_set(server: PluginServer, config: SkillConfig, shell: ShellRunner | None) -> McpToolSet:
    """Return the tools of a server of a plugin. The agent opens without them if the server cannot be reached.

    Raises:
        ConfigError: The server needs what the job does not grant, or its entry is not usable.
    """
    place = f"MCP server {server.full_name!r} of {server.path}"
    settings = own_server(place, server.settings, foreign=True)
    if settings is None:
        raise ConfigError(f"{place} is disabled there; remove it from {SkillOptions.PLUGINS_SERVERS.key}")
    if unusable := sorted(settings.keys() - _KEYS):
        raise ConfigError(f"{place}: {', '.join(unusable)} cannot be set by a plugin; declare it with @mcp_server")
    family, start = config.family(SkillOptions.PLUGINS_ENV), f"{server.full_name}."
    # A longer name of a server also starts with these characters.
    granted = {key.removeprefix(start): of for key, of in family.items() if key.rpartition(".")[0] + "." == start}
    try:
        if "command" in settings:
            params: ConnectionParams = _program(server, settings, granted, shell)
        else:
            # Clients of the standard replace nothing in addresses and headers.
            fill = LiteralText if server.is_standard else _filler(server, granted, {})
            headers = {name: fill(value) for name, value in settings.get("headers", {}).items()}
            kind = SseConnectionParams if settings.get("transport") == "sse" else StreamableHTTPConnectionParams
            params = kind(fill(settings["url"]), headers)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    return McpToolSet(params, name=server.full_name, required=False)


def _program(
    server: PluginServer, settings: Mapping[str, Any], granted: Mapping[str, str], shell: ShellRunner | None
) -> StdioConnectionParams:
    if shell is None:
        raise ConfigError("the server is a program, and the job runs no commands; set skills.shell.enabled to true")
    workspace = f"plugin\0{server.plugin}"
    data = shell.workspaces.for_key(workspace).work_dir / "data"
    folders = {"ROOT": server.root, "DATA": str(data)}
    fill = _filler(server, granted, folders)
    prefixes = ("",) if server.is_standard else ("", "CLAUDE_")
    own = {f"{prefix}PLUGIN_{name}": LiteralText(path) for prefix in prefixes for name, path in folders.items()}
    # Values of the plugin replace those of the job.
    env = {**granted, **{name: fill(value) for name, value in settings.get("env", {}).items()}, **own}
    command = settings["command"] if server.is_standard else fill(settings["command"])
    cwd = Path(os.path.normpath(os.path.join(server.root, fill(settings.get("cwd", "")))))
    in_data = cwd.is_relative_to(data)
    if "/" in command:
        command = os.path.normpath(os.path.join(server.root, command))
    for key, path in (
        ("command", command if "/" in command else server.root),
        ("cwd", server.root if in_data else cwd),
    ):
        if not inside(os.path.realpath(path), server.root):
            raise ConfigError(f"{key!r} leaves the plugin")
    program = PluginProgram(
        LiteralText(command),
        [fill(arg) for arg in settings.get("args", [])],
        env,
        LiteralText(cwd),
        workspace=workspace,
        folders=(data, cwd) if in_data else (data,),
        root=server.root,
    )
    return StdioConnectionParams(program)


def _filler(server: PluginServer, granted: Mapping[str, str], folders: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that replaces the variables in a string once. Its result has no other references.

    For a plugin of the standard, these are its folders. For one of a vendor, they are also variables that the job
    grants to the server.
    """

    def fill(text: str) -> str:
        used: list[str] = []

        def value(match: re.Match[str]) -> str:
            name = match["name"]
            if server.is_standard and match[0] not in ("${PLUGIN_ROOT}", "${PLUGIN_DATA}"):
                return match[0]
            if match["folder"] in folders:
                return folders[match["folder"]]
            if name in granted:
                used.append(granted[name])
                return "\0"
            if not name or match["default"] is None:
                key = f"{SkillOptions.PLUGINS_ENV.prefix}{server.full_name}.{name or 'NAME'}"
                raise ConfigError(f"{match[0]} is not granted by the job; set {key} to a reference")
            return match["default"]

        found = _VARIABLE.sub(value, text.replace("\0", ""))
        # References are in values of the job only.
        if used and "${" in found:
            raise ConfigError("a string with a variable of the job contains '${' in addition; remove it")
        return re.sub("\0", lambda match: used.pop(0), found) if used else LiteralText(found)

    return fill
