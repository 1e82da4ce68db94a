"""The tools of one MCP server, as a tool set."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from flink_skills.errors import ConfigError
from flink_skills.hints import none_is_default
from flink_skills.skill.text import hidden_characters
from flink_skills.tools.base import Tool, ToolContext
from flink_skills.tools.mcp.parameters import ConnectionParams, SseConnectionParams, StdioConnectionParams
from flink_skills.tools.mcp.server_connection import McpConnection, McpStartError
from flink_skills.tools.mcp.server_mapping import TOOL_SET_KEYS, servers_of
from flink_skills.tools.mcp.server_mapping import connection_params as params_of
from flink_skills.tools.mcp.tool import McpTool, Place, prompt_tools, resource_tools
from flink_skills.tools.mcp.transports import need_mcp, reports_changes
from flink_skills.tools.schemas import schema_problem
from flink_skills.tools.tool_names import NameUse, has_wildcard, hint, literal_start, matches, starts_match
from flink_skills.tools.toolset_base import BaseToolSet, JobServices

if TYPE_CHECKING:
    from flink_skills.tools.commands.runner import ShellRunner

_log = logging.getLogger("flink_skills.mcp")

#: Names or patterns of the server's tools, or a function of a name and a context.
ToolFilter = Union[Sequence[str], Callable[[str, ToolContext], bool]]
# Seconds. A job opens no later for an optional server that is slow or down; its tools come when it does.
_ANSWERED_WITHIN = 20.0
# Seconds. A job without answers must not wait forever.
_ANSWERED_BY_PEOPLE_WITHIN = 86_400.0
_MAX_PREFIX_LENGTH = 40


@none_is_default
class McpToolSet(BaseToolSet):
    """The tools of an MCP server.

    Each worker connects once for an agent, and all its turns share the connection. It is looked at every ``interval``
    seconds and made again when it is lost; meanwhile the tools are there, and calls of them are errors that say so. An
    agent with a server that cannot be reached when it opens fails to open, unless the server is not ``required``: then
    its tools come when it does.

    Args:
        connection_params: How to reach it: parameters, a URL, or a mapping (:func:`connection_params`).
        name: What logs call it; also tells apart the workspaces of programs.
        tool_filter: Which of its tools models may have: names or patterns, or a function of a tool's own name and the
            turn's context. None: all.
        prefix: Put before the names of its tools, as two servers may have tools of one name.
        prompts: Offer its prompts by the tools ``<prefix>list_prompts`` and ``<prefix>get_prompt``.
        resources: Offer its resources by ``<prefix>list_resources`` and ``<prefix>read_resource``.
        interval: Seconds between two looks at the connection and its tools.
        required: Whether the agent fails to open if the server cannot be reached.
        approve: Which of its tools need the approval of the agent: their own names or patterns, or True for all.
        skills: Whether its skills are a source of the agent, or a mapping with the settings of the source.

    Raises :class:`ConfigError` for parameters that cannot be, or without the extra ``mcp``.

    >>> McpToolSet("http://mcp.shop:8000/mcp", prefix="shop_", tool_filter=["price", "stock_*"])
    """

    def __init__(
        self,
        connection_params: Any,
        *,
        name: str = "",
        tool_filter: ToolFilter | None = None,
        prefix: str = "",
        prompts: bool = False,
        resources: bool = False,
        interval: float = 60.0,
        required: bool = True,
        approve: bool | Sequence[str] = False,
        skills: bool | Mapping[str, Any] = False,
    ) -> None:
        need_mcp()
        self._params: ConnectionParams = params_of(connection_params)
        self.name = name or prefix.rstrip("_-") or self._params.shown
        if isinstance(tool_filter, str):
            raise ConfigError(f"MCP server {self.name}: tool_filter is a string; give a list of names")
        if not re.fullmatch(r"[a-zA-Z0-9_-]*", prefix) or len(prefix) > _MAX_PREFIX_LENGTH:
            raise ConfigError(
                f"MCP server {self.name}: prefix={prefix[:80]!r}: write at most {_MAX_PREFIX_LENGTH} letters, digits, "
                "'_' and '-'"
            )
        if not interval > 0:
            raise ConfigError(f"MCP server {self.name}: interval={interval!r}: write seconds, more than 0")
        if not isinstance(required, bool):
            raise ConfigError(f"MCP server {self.name}: required={required!r}: write true or false")
        if isinstance(approve, str) or not (approve is True or approve is False or _are_names(approve)):
            raise ConfigError(f"MCP server {self.name}: approve={approve!r}: write true, false or a list of names")
        if not isinstance(skills, (bool, Mapping)):
            raise ConfigError(f"MCP server {self.name}: skills={skills!r}: write true, false or a mapping of settings")
        self._skills = skills
        self.required = required
        self._approve: tuple[str, ...] = ("*",) if approve is True else tuple(approve or ())
        self._approves_all = approve is True
        self._filter = tool_filter
        self.uses_workspace = isinstance(self._params, StdioConnectionParams) and self._params.sandbox
        self._prefix = prefix
        self._prompts = prompts
        self._resources = resources
        self._interval = interval
        self._shell: ShellRunner | None = None
        self._connection: McpConnection | None = None
        self._tools: dict[str, Tool] = {}
        self._made: dict[str, tuple[str, Tool | None]] = {}
        self._more: dict[str, Tool] = {}
        self._said: set[str] = set()
        self._omitted: dict[str, str] = {}
        self._was_listed = self._reports_changes = False

    def skill_source(self) -> dict[str, Any] | None:
        """Return the source of the server's skills, None if they are not wanted.

        Raises :class:`ConfigError` for a program in the sandbox: sources are read without one.
        """
        if self._skills is False:
            return None
        values = asdict(self._params)
        if isinstance(self._params, StdioConnectionParams):
            if self._params.sandbox:
                raise ConfigError(
                    f"MCP server {self.name}: skills of a program in the sandbox cannot be read, because the client "
                    "lists them. Set sandbox to false for a program that is trusted like the job's code."
                )
            program = values.pop("server_params")
            location = f"mcp+stdio:{shlex.join([program['command'], *program['args']])}"
            values |= {"env": program["env"], "cwd": program["cwd"]}
        else:
            location = f"mcp+{values.pop('url')}"
            values |= {"transport": "sse"} if isinstance(self._params, SseConnectionParams) else {}
        settings = {} if self._skills is True else dict(self._skills)
        return {"url": location, "label": self.name, "server": values, **settings}

    def attach(self, services: JobServices) -> None:
        self._shell = services.shell

    async def initialize(self) -> None:
        """Begin to connect, and wait for the first list of tools: at most 20 s for a server that is not required.

        Raises:
            McpStartError: A required server cannot be reached.
        """
        if self._connection is not None:
            return
        self._tools, self._made, self._more = {}, {}, {}
        self._connection = connection = McpConnection(
            self.name,
            self._params,
            shell=self._shell,
            on_open=self._read_tools,
            answer_within=_ANSWERED_BY_PEOPLE_WITHIN,
            on_omitted=self._omit,
            interval=self._interval,
            on_change=self._tell,
        )
        await connection.open(None if self.required else min(_ANSWERED_WITHIN, self._params.timeout))
        if connection.connected:
            _log.info("MCP server %s: %d tools", self.name, len(self._tools))
            if problem := self._filter_problem():
                if self.required:
                    await self.close()
                    raise McpStartError(problem, retryable=False)
                _log.warning("%s", problem)
        elif self.required and not connection.was_reached:
            await self.close()
            raise connection.start_error()

    def _filter_problem(self) -> str:
        """Return why models have none of the server's tools although names of tools are given."""
        if callable(self._filter) or not self._filter or any(matches(name, self._filter) for name in self._tools):
            return ""
        omitted = [f"{name!r} is omitted: {why}" for name, why in self._omitted.items() if matches(name, self._filter)]
        why = "; ".join(omitted[:3]) or hint(self._filter[0], self._tools)
        return (
            f"tools of the MCP server {self.name!r} ({self._params.shown}): {', '.join(self._filter)[:200]!r} selects "
            f"none of its {len(self._tools)} tools. {why.rstrip('.')}. Correct the names, or set 'required' to false"
        )

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def figures(self) -> dict[str, int]:
        """``mcpServers``, ``mcpServersDown`` and ``mcpReconnects``."""
        connection = self._connection
        if connection is None:
            return {}
        return {
            "mcpServers": 1,
            "mcpServersDown": int(not connection.connected),
            "mcpReconnects": connection.reconnects,
        }

    @property
    def shown(self) -> str:
        """The program or the address, without secrets."""
        return self._params.shown

    @property
    def program(self) -> str | None:
        """The program of a server on stdio, or None for a server with an address."""
        return self._params.server_params.command if isinstance(self._params, StdioConnectionParams) else None

    async def get_tools(self, context: ToolContext) -> Iterable[Tool]:
        chosen = self._filter
        return [
            *(
                tool
                for name, tool in self._tools.items()
                if chosen is None or (chosen(name, context) if callable(chosen) else matches(name, chosen))
            ),
            *self._more.values(),
        ]

    def tool_names(self) -> list[str]:
        chosen = None if callable(self._filter) else self._filter
        own = [tool.spec.name for name, tool in self._tools.items() if chosen is None or matches(name, chosen)]
        return [*own, *(self._more or self._names_of_more())]

    def _names_of_more(self) -> list[str]:
        found = ["list_resources", "read_resource"] if self._resources else []
        found += ["list_prompts", "get_prompt"] if self._prompts else []
        return [self._prefix + name for name in found]

    def can_bring(self, pattern: str) -> bool:
        if self._filter is None or callable(self._filter):
            return starts_match(pattern, self._prefix)
        for own in self._filter:
            name = self._prefix + own
            if starts_match(pattern, literal_start(name)) if has_wildcard(own) else matches(_usable(name), (pattern,)):
                return True
        return False

    @property
    def is_complete(self) -> bool:
        return self._was_listed and not self._reports_changes

    @property
    def label(self) -> str:
        return f"MCP server {self.name!r}"

    def name_uses(self) -> Iterator[NameUse]:
        for own in self._approve:
            pattern, is_all = self._with_prefix(own), self._approves_all
            yield NameUse(f"approve of {self.label}", pattern, is_strict=True, approves=True, only_warns=is_all)
        for own in () if self._filter is None or callable(self._filter) else self._filter:
            yield NameUse(
                f"tools of {self.label}", self._with_prefix(own), is_strict=True, only_warns=not self.required
            )

    def _with_prefix(self, own: str) -> str:
        return self._prefix + own if has_wildcard(own) else _usable(self._prefix + own)

    async def close(self) -> None:
        """End the connection, and a program with it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    @property
    def _place(self) -> Place:
        if isinstance(self._params, StdioConnectionParams):
            return "sandbox" if self._params.sandbox else "worker"
        return "remote"

    async def _read_tools(self, client: Any) -> None:
        """Ask which tools there are. A tool that stayed the same stays the same object."""
        connection = self._connection
        if connection is None:  # closed meanwhile
            return
        found: dict[str, Tool] = {}
        names: set[str] = set()
        made: dict[str, tuple[str, Tool | None]] = {}
        for listed in await _listed_tools(client, self._say):
            name = _usable(self._prefix + listed.name)
            if not listed.name:
                self._say("a tool without a name is omitted")
                continue
            if name in names:
                self._say(f"the tool {listed.name[:80]!r} is omitted: another tool has the name {name!r}")
                continue
            names.add(name)
            before = self._made.get(listed.name)
            if before is not None and before[0] == listed.spec:
                tool = before[1]
            else:
                # A list may have megabytes of schemas.
                problem = await asyncio.to_thread(schema_problem, listed.theirs.input_schema)
                tool = self._make(connection, listed, name, problem)
            made[listed.name] = (listed.spec, tool)
            if tool is not None:
                found[listed.name] = tool
        self._made = made
        more = [
            *(resource_tools(connection, self._prefix, self._place) if self._resources else ()),
            *(prompt_tools(connection, self._prefix, self._place) if self._prompts else ()),
        ]
        # One that is there stays the same object, too.
        self._more = {name: self._more.get(name, tool) for tool in more if (name := tool.spec.name) not in names}
        for tool in self._more.values():
            tool.approve = self._approves_all
        changed = self._was_listed and found.keys() != self._tools.keys()
        self._tools = found
        self._was_listed, self._reports_changes = True, reports_changes(client, "tool")
        if changed:
            self._tell()

    def _make(self, connection: McpConnection, listed: Listed, name: str, problem: str) -> Tool | None:
        unseen = _name_problem(listed.theirs.input_schema)
        if unseen:
            self._omit(listed.name, unseen)
            return None
        if problem:
            self._omit(listed.name, f"model providers reject its schema: {problem}")
            return None
        tool = McpTool(connection, listed.theirs, name, self._place)
        tool.approve = matches(listed.name, self._approve)
        return tool

    def _omit(self, name: str, why: str) -> None:
        if len(self._omitted) < _MAX_TOOLS:
            self._omitted[name] = why
        self._say(f"the tool {name[:80]!r} is omitted: {why}")

    def _say(self, text: str) -> None:
        if text not in self._said and len(self._said) < 200:
            self._said.add(text)
            _log.warning("MCP server %s: %s", self.name, text)


def mcp_servers_from(path: str | os.PathLike[str], servers: Mapping[str, Any] | None = None) -> list[McpToolSet]:
    """Return the tools of the servers in a file of other clients, such as ``.mcp.json``.

    Workers read it as well: it has to be where the module of the agent is.

    Args:
        path: The file, which has the object ``mcpServers``.
        servers: Arguments of ``@mcp_server`` by the name of a server, such as ``prefix`` and ``tools``.

    Raises :class:`ConfigError`, which names the file, the server and the key.

    >>> class Clerk(Agent):  # doctest: +SKIP
    ...     @tool_set
    ...     def servers(self):
    ...         return mcp_servers_from(Path(__file__).with_name(".mcp.json"), {"shop": {"prefix": "shop_"}})
    """
    file = Path(path).absolute()
    found = []
    for name, server in servers_of({**(servers or {}), "file": file.name}, file.parent, str(file)).items():
        arguments = {key: server.pop(key) for key in TOOL_SET_KEYS if key in server}
        tools = arguments.pop("tools", None)
        found.append(McpToolSet(server, name=name, tool_filter=tools, **arguments))
    return found


def _are_names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) and name for name in value)


def _usable(name: str) -> str:
    """A name that all providers take."""
    text = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if len(text) <= 64:
        return text
    # The beginnings of long names are often the same.
    return f"{text[:55]}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


_MAX_PAGES = 100
_MAX_TOOLS = 1_000
_MAX_SPEC = 64_000
_MAX_LIST = 4_000_000


@dataclass(frozen=True)
class Listed:
    """A tool of a server. ``spec`` is the JSON from which its description for models follows."""

    theirs: Any
    spec: str

    @property
    def name(self) -> str:
        """The server's own name of the tool."""
        return str(self.theirs.name)


async def _listed_tools(client: Any, say: Callable[[str], None]) -> list[Listed]:
    """Return the tools of a server in its order. ``say`` receives a message about those that are omitted.

    At most 1,000 tools on 100 pages, each described by 64,000 characters and all by 4 million. Raises what the client
    raises.
    """
    if client.server_capabilities.tools is None:
        return []
    found: list[Listed] = []
    size, cursor = 0, None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        for theirs in page.tools:
            spec = _spec(theirs)
            if spec is None or len(spec) > _MAX_SPEC:
                name = theirs.name[:80]
                if spec is None:
                    say(f"the tool {name!r} is omitted: its definition cannot be serialized as JSON")
                else:
                    say(
                        f"the tool {name!r} is omitted: its definition has {len(spec):,} characters, and the maximum "
                        f"is {_MAX_SPEC:,}"
                    )
                continue
            size += len(spec)
            if len(found) >= _MAX_TOOLS or size > _MAX_LIST:
                say(f"the server's list of tools is too long: the tools after the first {len(found):,} are omitted")
                return found
            found.append(Listed(theirs, spec))
        cursor = page.next_cursor
        if not cursor:
            return found
    say(f"the server's list of tools has more than {_MAX_PAGES} pages: the tools on later pages are omitted")
    return found


def _name_problem(schema: Any) -> str:
    """Return why a reader of ``schema`` would mistake a name in it. Return an empty string for no reason.

    Names are those of arguments, and all other words of the schema. A call has to use them as they are.

    >>> _name_problem({"properties": {"amount\\u200b": {}}})
    "the schema contains the name 'amount\\\\u200b', which has hidden characters or unusual whitespace"
    """
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, Mapping):
            waiting += part.values()
            odd = next((name for name in part if _is_odd(name)), None)
            if odd is not None:
                return f"the schema contains the name {odd[:80]!a}, which has hidden characters or unusual whitespace"
    return ""


def _is_odd(name: str) -> bool:
    """Return True if a name has hidden characters, a joiner, or space that is not a single blank inside."""
    if name != name.strip():
        return True
    if name.isascii() and name.isprintable():
        return False
    return bool(hidden_characters(name)) or any(
        unicodedata.category(char) in ("Cc", "Cf", "Zs", "Zl", "Zp") and char != " " for char in name
    )


def _spec(theirs: Any) -> str | None:
    try:
        return json.dumps(
            [theirs.name, theirs.description, theirs.title, theirs.input_schema, str(theirs.annotations)],
            sort_keys=True,
        )
    except (ValueError, TypeError, RecursionError):
        return None
