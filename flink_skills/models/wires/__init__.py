"""Clients of this package for the wires of OpenAI and Anthropic.

A *wire* maps a conversation to the JSON of one HTTP API and back. :class:`HttpModel` sends that JSON over aiohttp. All
other providers are asked through pydantic-ai.
"""

from __future__ import annotations

from flink_skills.models.wires.anthropic_messages import AnthropicMessages
from flink_skills.models.wires.chat_completions import ChatCompletions
from flink_skills.models.wires.http_model import EventData, HttpModel
from flink_skills.models.wires.responses import Responses
from flink_skills.models.wires.wire import StreamReader, Wire

__all__ = [
    "AnthropicMessages",
    "ChatCompletions",
    "EventData",
    "HttpModel",
    "Responses",
    "StreamReader",
    "Wire",
]
