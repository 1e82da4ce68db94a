"""A tool of an MCP server."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import PlainValidator

from flink_skills.errors import WaitCancelled, WaitTimeout
from flink_skills.skill.text import clean
from flink_skills.telemetry.activity import current_activity
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.mcp.server_connection import McpAnswerError, McpConnection, McpLostError
from flink_skills.tools.mcp.server_messages import OpenCall, Questions
from flink_skills.tools.media import Media
from flink_skills.tools.schemas import fit_schema

_log = logging.getLogger("flink_skills.mcp")
T = TypeVar("T")
_MAX_MESSAGE_LENGTH = 4_000
# Characters of JSON. What code gets of a result is journalled, so it is part of each checkpoint of a turn under way.
_MAX_VALUE = 1 << 20
_TEXTS = ("description", "title")
Place = Literal["sandbox", "remote", "worker"]
_MAX_ITEMS = 500
_MAX_PAGES = 50
# Characters of what describes the items. Code that called the tool gets all of it, and a journal stores it.
_MAX_LIST = 1 << 20


class McpTool(Tool):
    """``theirs`` is the server's own description, ``name`` what models call it.

    Descriptions lose the characters that a reader does not see. It is idempotent where the server says that it is, or
    that it only reads. The structured form of a result is left
    out where it is longer than 1,048,576 characters of JSON.
    """

    def __init__(self, connection: McpConnection, theirs: Any, name: str, place: Place) -> None:
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

        def called(questions: Questions | None) -> Awaitable[Any]:
            return _requested(
                self._connection,
                lambda client: client.call_tool(self._theirs, dict(arguments), meta=meta),
                self._spec.name,
                idempotent=self.idempotent,
                questions=questions,
            )

        result: Any = await (called(None) if context.waits is None else self._called(called, arguments, context))
        if isinstance(result, ToolResult):
            return result
        texts, media = _block_parts(result.content)
        sections = _sectioned(texts, "\n")
        text = "".join(sections)
        value = result.structured_content
        if value is not None:
            written = json.dumps(value, ensure_ascii=False)
            text = text or written
            if len(written) > _MAX_VALUE:
                value = None
        text = text or "(no content)"
        return ToolResult(text, is_error=bool(result.is_error), value=value, sections=sections, media=media)

    async def _called(
        self, called: Callable[[Questions], Awaitable[Any]], to_call: Mapping[str, Any], context: ToolContext
    ) -> Any:
        """Return the result of a call. Questions of the server are waits of the turn, in the task of the call.

        While the turn is stopped, the connection holds the call, and the next attempt continues it.
        """
        connection = self._connection
        key = f"{context.call_id} {json.dumps([self._theirs, to_call], sort_keys=True, default=str)}"

        def begun() -> OpenCall:
            questions = Questions(context.call_id)
            return OpenCall(questions, asyncio.ensure_future(called(questions)))

        def again() -> OpenCall:
            # The connection did not last as long as the wait. The repeated call asks again, and has the answer.
            if context.waits is not None:
                context.waits.begin_again()
            return begun()

        running = connection.paused.pop(key, None) or begun()
        try:
            # The turn has stopped meanwhile: its waits are requested again, in their order.
            for number, (params, answer) in enumerate(running.asked):
                reply = await self._reply(params, context)
                if number == len(running.asked) - 1 and not answer.done():
                    answer.set_result(reply)
            if running.is_lost:
                running = again()
            while await running.next_question():
                params, answer = running.asked[-1]
                reply = await self._reply(params, context)
                if not answer.done():
                    answer.set_result(reply)
                if running.is_lost:
                    running = again()
            return running.calling.result()
        except asyncio.CancelledError:
            if running.is_waiting:
                connection.paused.add(key, running)
            else:
                running.give_up()
            raise

    async def _reply(self, params: Any, context: ToolContext) -> Any:
        """Return what a person answers to a question of the server."""
        from mcp.types import ElicitResult

        schema = dict(params.requested_schema)
        name, server = self._spec.name, self._connection.name
        try:
            action, content = await context.wait(
                name,
                {"server": server, "schema": schema},
                question=clean(params.message)[:_MAX_MESSAGE_LENGTH],
                timeout=self._connection.answer_within,
                answer_type=Annotated[Any, PlainValidator(partial(_form_answer, schema))],
            )
        except WaitCancelled:
            action, content = "cancel", None
        except WaitTimeout:
            action, content = "decline", None
        if action != "accept":
            _log.warning("tool %s: the answer to the question of the MCP server %s is %r", name, server, action)
        return ElicitResult(action=action, content=content)


def _form_answer(schema: Mapping[str, Any], value: Any) -> tuple[str, dict[str, Any] | None]:
    """Return the action and the content of an answer, with defaults. Raises :class:`ValueError` if it does not fit.

    >>> _form_answer({"properties": {"size": {"type": "integer", "default": 3}}}, {})
    ('accept', {'size': 3})
    """
    found = schema.get("properties")
    fields: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    if value in ("decline", "cancel"):
        return value, None
    if isinstance(value, Mapping) and "action" not in fields and value.get("action") in ("accept", "decline", "cancel"):
        if value["action"] != "accept":
            return value["action"], None
        value = value.get("content")
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        if len(fields) != 1 or (isinstance(value, (list, str)) and not value):
            raise ValueError(f"write an object with {', '.join(fields)}, 'decline' or 'cancel'")
        value = {next(iter(fields)): value}
    try:
        content = fit_schema("the answer", value, {**schema, "type": "object", "additionalProperties": False})
    except ArgumentError as error:
        raise ValueError(str(error)) from None
    for name, of in content.items():
        about = fields.get(name)
        if not isinstance(about, Mapping) or not isinstance(of, (str, list)):
            continue
        kind = "Length" if isinstance(of, str) else "Items"
        least, most = about.get(f"min{kind}"), about.get(f"max{kind}")
        if (isinstance(least, int) and len(of) < least) or (isinstance(most, int) and len(of) > most):
            raise ValueError(f"{name} has the length {len(of)}; the server wants {least or 0} to {most or 'any'}")
    return "accept", content


async def _requested(
    connection: McpConnection,
    request: Callable[[Any], Awaitable[T]],
    name: str,
    *,
    idempotent: bool,
    questions: Questions | None = None,
) -> T | ToolResult:
    """What the server answers, or what to tell the model of ``name`` where that is no answer."""
    from mcp.shared.exceptions import MCPError

    activity = current_activity()
    if activity is not None:
        activity.attributes["mcp_server"] = connection.name
    try:
        return await connection.ask(request, questions)
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
        message = connection.hidden.in_text(str(error.message))
        return ToolResult(f"{name}: the server refuses: {message[:_MAX_MESSAGE_LENGTH]}", is_error=True)


def _block_parts(blocks: Iterable[Any]) -> tuple[list[str], tuple[Media, ...]]:
    """Return the text of each block of content, and the images, PDF documents and audio.

    The text of a block without text describes it. Blocks are media if their bytes are of a supported type.
    """
    texts: list[str] = []
    found: list[Media] = []
    for block in blocks:
        resource = getattr(block, "resource", None)
        data = getattr(block, "data", None) or getattr(resource, "blob", None)
        media = None if data is None else _resource_media(data, str(getattr(resource, "uri", "")))
        if media is not None:
            found.append(media)
        text = _block_text(block) if media is None else f"[{media.summary}]"
        if text:
            texts.append(text)
    return texts, tuple(found)


def _resource_media(data: str, uri: str = "") -> Media | None:
    """Return the media that base64 text contains, None if it is of no supported type."""
    try:
        return Media.recognized(base64.b64decode(data, validate=True), uri.rpartition("/")[2])
    except ValueError:
        return None


def _sectioned(texts: Iterable[str], separator: str) -> tuple[str, ...]:
    """Return ``texts`` with ``separator`` between them, as sections of a result.

    >>> _sectioned(["a", "b"], "\\n")
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
            media = _resource_media(blob, str(of.uri)) if blob else None
            if media is not None:
                found.append(media)
                text = f"[{media.summary}]"
            texts.append(f"[{of.mime_type or 'binary'}, no text]" if text is None else str(text))
        sections = _sectioned(texts, "\n")
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
        name, values = arguments.get("name"), arguments.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(values, Mapping):
            return ToolResult(f"{prefix}get_prompt: give name, a string, and arguments, an object", is_error=True)
        result = await client.get_prompt(name, {str(key): str(value) for key, value in values.items()})
        parts = [(message.role, *_block_parts([message.content])) for message in result.messages]
        sections = _sectioned([f"{role}: {''.join(texts)}" for role, texts, _ in parts], "\n\n")
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
            if size > _MAX_LIST or len(found) >= _MAX_ITEMS:
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
        return await _requested(
            self._connection, lambda client: self._run(client, arguments), self._spec.name, idempotent=True
        )


def _described(of: Any, **more: Any) -> dict[str, Any]:
    found = {"name": of.name, **more}
    if of.description:
        found["description"] = of.description
    return found
