"""A tool of an MCP server."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

from flink_skills.skill.text import clean
from flink_skills.telemetry.activity import current_activity
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.mcp.connection import McpAnswerError, McpConnection, McpLostError
from flink_skills.tools.media import Media

__all__ = ["McpTool", "block_parts", "requested", "resource_media", "sectioned"]

T = TypeVar("T")
_MAX_MESSAGE_LENGTH = 4_000
# Characters of JSON. What code gets of a result is journalled, so it is part of each checkpoint of a turn under way.
_MAX_VALUE = 1 << 20
_TEXTS = ("description", "title")


class McpTool(Tool):
    """``theirs`` is the server's own description, ``name`` what models call it.

    Descriptions lose the characters that a reader does not see. It is idempotent where the server says that it is, or
    that it only reads. The structured form of a result is left
    out where it is longer than 1,048,576 characters of JSON.
    """

    def __init__(
        self, connection: McpConnection, theirs: Any, name: str, place: Literal["sandbox", "remote", "worker"]
    ) -> None:
        self._connection = connection
        self._theirs = theirs.name
        self.runs_in = place
        hints = theirs.annotations
        self.idempotent = bool(hints and (hints.read_only_hint or hints.idempotent_hint))
        schema = dict(_visible(theirs.input_schema or {}))
        schema.setdefault("type", "object")
        schema.setdefault("properties", {})
        self._spec = ToolSpec(name, clean(theirs.description or theirs.title or "").strip() or name, schema)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        meta: Any = {"flink_skills/call_id": context.call_id, "flink_skills/attempt": context.attempt}
        result = await requested(
            self._connection,
            lambda client: client.call_tool(self._theirs, dict(arguments), meta=meta),
            self._spec.name,
            idempotent=self.idempotent,
        )
        if isinstance(result, ToolResult):
            return result
        texts, media = block_parts(result.content)
        sections = sectioned(texts, "\n")
        text = "".join(sections)
        value = result.structured_content
        if value is not None:
            written = json.dumps(value, ensure_ascii=False)
            text = text or written
            if len(written) > _MAX_VALUE:
                value = None
        text = text or "(no content)"
        return ToolResult(text, is_error=bool(result.is_error), value=value, sections=sections, media=media)


async def requested(
    connection: McpConnection, request: Callable[[Any], Awaitable[T]], name: str, *, idempotent: bool
) -> T | ToolResult:
    """What the server answers, or what to tell the model of ``name`` where that is no answer."""
    from mcp.shared.exceptions import MCPError

    activity = current_activity()
    if activity is not None:
        activity.attributes["mcp_server"] = connection.name
    try:
        return await connection.ask(request)
    except McpLostError as error:
        if activity is not None:
            activity.attributes["mcp_failed"] = True
        effect = " It is not known whether the call had an effect." if error.asked and not idempotent else ""
        return ToolResult(f"{name}: {error}.{effect} Try again later.", is_error=True, retryable=True)
    except McpAnswerError as error:
        if activity is not None:
            activity.attributes["mcp_failed"] = True
        effect = " The call may have had an effect." if not idempotent else ""
        return ToolResult(f"{name}: {error}.{effect}", is_error=True)
    except MCPError as error:
        told = connection.hidden.in_text(str(error.message))
        return ToolResult(f"{name}: the server refuses: {told[:_MAX_MESSAGE_LENGTH]}", is_error=True)


def block_parts(blocks: Iterable[Any]) -> tuple[list[str], tuple[Media, ...]]:
    """Return the text of each block of content, and the images, PDF documents and audio.

    The text of a block without text describes it. Blocks are media if their bytes are of a supported type.
    """
    texts: list[str] = []
    found: list[Media] = []
    for block in blocks:
        resource = getattr(block, "resource", None)
        data = getattr(block, "data", None) or getattr(resource, "blob", None)
        media = None if data is None else resource_media(data, str(getattr(resource, "uri", "")))
        if media is not None:
            found.append(media)
        text = _block_text(block) if media is None else f"[{media.summary}]"
        if text:
            texts.append(text)
    return texts, tuple(found)


def resource_media(data: str, uri: str = "") -> Media | None:
    """Return the media that base64 text contains, None if it is of no supported type."""
    try:
        return Media.recognized(base64.b64decode(data, validate=True), uri.rpartition("/")[2])
    except ValueError:
        return None


def sectioned(texts: Iterable[str], separator: str) -> tuple[str, ...]:
    """Return ``texts`` with ``separator`` between them, as sections of a result.

    >>> sectioned(["a", "b"], "\\n")
    ('a', '\\n', 'b')
    """
    return tuple(part for text in texts for part in (separator, text))[1:]


def _visible(schema: Any) -> Any:
    """Return a schema whose descriptions and titles have no hidden characters."""
    if isinstance(schema, Mapping):
        return {
            word: clean(part) if word in _TEXTS and isinstance(part, str) else _visible(part)
            for word, part in schema.items()
        }
    return [_visible(part) for part in schema] if isinstance(schema, list) else schema


def _block_text(block: Any) -> str:
    kind = block.type
    if kind == "text":
        return str(block.text)
    if kind == "resource_link":
        return f"[resource {block.uri}]" + (f" {block.description}" if block.description else "")
    if kind == "resource":
        text = getattr(block.resource, "text", None)
        return str(text) if text is not None else f"[resource {block.resource.uri}, no text]"
    size = len(getattr(block, "data", "")) * 3 // 4
    return f"[{kind}, {getattr(block, 'mime_type', 'of unknown type')}, {size:,} bytes]"
