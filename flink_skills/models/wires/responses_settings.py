"""The settings of a chat model as fields of OpenAI's responses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flink_skills.models.schemas import is_strict, schema_name
from flink_skills.models.wires.chat_settings import leave_out_sampling, reasoning_effort
from flink_skills.models.wires.json_bytes import dump

__all__ = ["ResponsesSettings"]

_SAME = ("temperature", "top_p", "service_tier")
# Settings that are part of another field.
_NESTED = frozenset({"openai_reasoning_effort", "openai_reasoning_summary", "openai_text_verbosity"})
# OpenAI returns encrypted reasoning only for these models, and refuses a request for it for others.
_REASONS = re.compile(r"(?!.*-chat)(?:o[1-9]|gpt-[5-9]|codex|computer-use)")
_ENCRYPTED = "reasoning.encrypted_content"
_MAX = 16


class ResponsesSettings:
    """Encodes settings for one model, and keeps what it encoded last."""

    def __init__(self, model: str) -> None:
        self._model = model
        # A value holds the settings and the schema, so that no others get their ids.
        self._kept: dict[tuple[Any, ...], tuple[Any, Any, bytes]] = {}

    def encoded(self, settings: Mapping[str, Any], schema: Mapping[str, Any] | None, *, with_tools: bool) -> bytes:
        """Return the fields as JSON that continues an object: each with a comma before it."""
        key = (id(settings), id(schema), with_tools)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _MAX:
                self._kept.pop(next(iter(self._kept)))
            fields = dump(self.fields(settings, schema, with_tools=with_tools))
            kept = self._kept[key] = (settings, schema, b"," + fields[1:-1])
        return kept[2]

    def fields(
        self, settings: Mapping[str, Any], schema: Mapping[str, Any] | None, *, with_tools: bool
    ) -> dict[str, Any]:
        """Return the fields of a request for settings and an output schema."""
        # The conversation is sent with each request: the provider need not store it.
        found: dict[str, Any] = {"store": False}
        for name, value in settings.items():
            if value is None or name in _NESTED:
                continue
            if name in _SAME:
                found[name] = value
            elif name.startswith("openai_"):
                found[name.removeprefix("openai_")] = value
        if (most := settings.get("max_tokens")) is not None:
            found["max_output_tokens"] = most
        if with_tools and (parallel := settings.get("parallel_tool_calls")) is not None:
            found["parallel_tool_calls"] = parallel
        if reasoning := _reasoning(settings):
            found["reasoning"] = {**reasoning, **found.get("reasoning", {})}
        if "reasoning" in found or _REASONS.match(self._model):
            found.setdefault("include", [_ENCRYPTED])
        if text := _text(settings, schema):
            found["text"] = {**found.get("text", {}), **text}
        leave_out_sampling(self._model, found)
        # Fields of extra_body replace all others.
        found.update(settings.get("extra_body") or {})
        return found


def _reasoning(settings: Mapping[str, Any]) -> dict[str, Any]:
    effort = settings.get("openai_reasoning_effort") or reasoning_effort(settings.get("thinking"))
    summary = settings.get("openai_reasoning_summary")
    return {name: value for name, value in (("effort", effort), ("summary", summary)) if value}


def _text(settings: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    text: dict[str, Any] = {}
    if schema is not None:
        text["format"] = {
            "type": "json_schema",
            "name": schema_name(schema),
            "schema": schema,
            "strict": is_strict(schema),
        }
        if "description" in schema:
            text["format"]["description"] = str(schema["description"])
    if verbosity := settings.get("openai_text_verbosity"):
        text["verbosity"] = verbosity
    return text
