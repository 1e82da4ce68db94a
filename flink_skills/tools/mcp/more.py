"""The prompts and resources of an MCP server, as tools."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.mcp.connection import McpConnection
from flink_skills.tools.mcp.tool import block_parts, requested, resource_media, sectioned

__all__ = ["prompt_tools", "resource_tools"]

Place = Literal["sandbox", "remote", "worker"]
_MAX = 500
_MAX_PAGES = 50
# Characters of what describes the items. Code that called the tool gets all of it, and a journal stores it.
_MAX_LIST = 1 << 20


def resource_tools(connection: McpConnection, prefix: str, place: Place) -> list[Tool]:
    """``list_resources`` and ``read_resource``."""
    from mcp.shared.exceptions import MCPError

    async def listed(client: Any, arguments: Mapping[str, Any]) -> ToolResult:
        found = await _all(
            client.list_resources, lambda page: [_described(of, uri=str(of.uri)) for of in page.resources]
        )
        # Servers without templates need not know the question.
        with suppress(MCPError):
            found += await _all(
                client.list_resource_templates,
                lambda page: [_described(of, uri_template=of.uri_template) for of in page.resource_templates],
            )
        return ToolResult(json.dumps(found, ensure_ascii=False), value=found)

    async def read(client: Any, arguments: Mapping[str, Any]) -> ToolResult:
        uri = arguments.get("uri")
        if not isinstance(uri, str) or not uri:
            return ToolResult(f"{prefix}read_resource: give the argument uri, a string", is_error=True)
        texts, found = [], []
        for of in (await client.read_resource(uri)).contents:
            text, blob = getattr(of, "text", None), getattr(of, "blob", None)
            media = resource_media(blob, str(of.uri)) if blob else None
            if media is not None:
                found.append(media)
                text = f"[{media.summary}]"
            texts.append(f"[{of.mime_type or 'binary'}, no text]" if text is None else str(text))
        sections = sectioned(texts, "\n")
        return ToolResult("".join(sections) or "(empty)", sections=sections, media=tuple(found))

    uri = {"uri": {"type": "string", "description": "As list_resources gives it; templates filled in."}}
    return [
        _Request(connection, _spec(f"{prefix}list_resources", "List the resources that can be read."), listed, place),
        _Request(connection, _spec(f"{prefix}read_resource", "Read a resource.", uri, "uri"), read, place),
    ]


def prompt_tools(connection: McpConnection, prefix: str, place: Place) -> list[Tool]:
    """``list_prompts`` and ``get_prompt``."""

    async def listed(client: Any, arguments: Mapping[str, Any]) -> ToolResult:
        found = await _all(
            client.list_prompts,
            lambda page: [
                _described(of, arguments=[a.name + ("" if a.required else "?") for a in of.arguments or ()])
                for of in page.prompts
            ],
        )
        return ToolResult(json.dumps(found, ensure_ascii=False), value=found)

    async def get(client: Any, arguments: Mapping[str, Any]) -> ToolResult:
        name, given = arguments.get("name"), arguments.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(given, Mapping):
            return ToolResult(f"{prefix}get_prompt: give name, a string, and arguments, an object", is_error=True)
        result = await client.get_prompt(name, {str(key): str(value) for key, value in given.items()})
        parts = [(message.role, *block_parts([message.content])) for message in result.messages]
        sections = sectioned([f"{role}: {''.join(texts)}" for role, texts, _ in parts], "\n\n")
        media = tuple(of for *_, found in parts for of in found)
        return ToolResult("".join(sections) or "(empty)", sections=sections, media=media)

    named = {
        "name": {"type": "string"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    return [
        _Request(connection, _spec(f"{prefix}list_prompts", "List the prompts of the server."), listed, place),
        _Request(connection, _spec(f"{prefix}get_prompt", "Get the text of a prompt.", named, "name"), get, place),
    ]


async def _all(
    ask: Callable[..., Awaitable[Any]], items: Callable[[Any], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the items of all pages of a list, at most 500 items and 1,048,576 characters of JSON."""
    found: list[dict[str, Any]] = []
    size, cursor = 0, None
    for _ in range(_MAX_PAGES):
        page = await ask(cursor=cursor)
        for item in items(page):
            size += len(json.dumps(item, ensure_ascii=False))
            if size > _MAX_LIST or len(found) >= _MAX:
                return found
            found.append(item)
        cursor = page.next_cursor
        if not cursor:
            break
    return found


def _spec(name: str, description: str, properties: Mapping[str, Any] | None = None, *required: str) -> ToolSpec:
    schema = {"type": "object", "properties": dict(properties or {}), "required": list(required)}
    return ToolSpec(name, description, schema)


class _Request(Tool):
    """A request to the server that only reads."""

    def __init__(
        self,
        connection: McpConnection,
        spec: ToolSpec,
        run: Callable[[Any, Mapping[str, Any]], Awaitable[ToolResult]],
        place: Place,
    ) -> None:
        self.runs_in = place
        self._connection = connection
        self._run = run
        self._spec = spec

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return await requested(
            self._connection, lambda client: self._run(client, arguments), self._spec.name, idempotent=True
        )


def _described(of: Any, **more: Any) -> dict[str, Any]:
    found = {"name": of.name, **more}
    if of.description:
        found["description"] = of.description
    return found
