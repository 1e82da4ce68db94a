"""The agents and the model that are measured: the real turn loop, and a model whose only property is its latency."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from flink_skills import Agent, ChatModel, ResourceDescriptor, SkillConfig, chat_model_setup, tool
from flink_skills.models.messages import ModelRequest, ModelResponse, ToolCall, ToolMessage, Usage
from flink_skills.models.registry import ModelSetup, Provider, register_provider

ANSWER = "This is the answer of a model of no particular wisdom, about as long as a short answer is."


class LatencyModel(ChatModel):
    """Answers after ``milliseconds``; where tools are offered, calls the first one once before."""

    def __init__(self, milliseconds: float) -> None:
        self.name = f"latency:{milliseconds:g}"
        self._seconds = milliseconds / 1000

    async def request(self, request: ModelRequest) -> ModelResponse:
        if self._seconds:
            await asyncio.sleep(self._seconds)
        if request.tools and not isinstance(request.messages[-1], ToolMessage):
            call = ToolCall("call-1", request.tools[0].name, {"article": "screw"})
            return ModelResponse("", (call,), Usage(100, 10, 1))
        return ModelResponse(ANSWER, (), Usage(100, 20, 1))


def _create(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    return LatencyModel(float(setup.model))


register_provider(Provider("latency", _create, strategies=False), replace=True)


class Chat(Agent):
    """One chat per turn; the output says when the turn began and ended."""

    instructions = "You answer questions about an event."

    async def on_event(self, event: Any, ctx: Any) -> Any:
        began = time.time_ns()
        await ctx.chat(event)
        return f"@{began}:{time.time_ns()}@"


class Instant(Chat):
    model = "latency:0"


class Slow(Chat):
    model = "latency:500"


class _Priced(Chat):
    @tool
    async def price(self, article: str) -> float:
        """Price of an article."""
        return len(article) / 2


class Waiting(Chat):
    """For what waiting turns cost."""

    model = "latency:10000"


class Hanging(Chat):
    """Its turns end long after what is measured."""

    model = "latency:600000"


class Remembering(Chat):
    """Turns of a conversation."""

    model = "latency:0"
    session = "key"


class Asking(Agent):
    """Ask a person about each event. The answer has the time at which it was written."""

    async def on_event(self, event: Any, ctx: Any) -> Any:
        answer = await ctx.wait("approval", {"id": event["id"]}, question="Is this event approved?")
        self._note(ctx.config.get("skills.user.latencies"), time.time() - float(answer))
        return "approved"

    @staticmethod
    def _note(file: str, seconds: float) -> None:
        with Path(file).open("a", encoding="utf-8") as log:
            log.write(f"{seconds}\n")


class Napping(Agent):
    """Sleep until the time of the option ``skills.user.until``, in seconds since 1970."""

    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.sleep_until(1000 * float(ctx.config.get("skills.user.until")))
        return "slept"


class InstantWithTool(_Priced):
    model = "latency:0"


class SlowWithTool(_Priced):
    model = "latency:500"


class _OverHttp:
    """Asks the server of the measurement; the address is in the environment of the process that submits."""

    @chat_model_setup
    @staticmethod
    def server() -> ResourceDescriptor:
        url = os.environ.get("BENCH_MODEL_URL", "http://127.0.0.1:1/v1")
        return ResourceDescriptor(clazz="openai-compatible:stub", base_url=url)


class Http(_OverHttp, Chat):
    pass


class HttpPaced(_OverHttp, Agent):
    """The output says when the event was due instead of when its turn began."""

    instructions = "You answer questions about an event."

    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.chat(event)
        return f"@{event['due']}:{time.time_ns()}@"


class HttpWithTool(_OverHttp, _Priced):
    pass


class HttpRemembering(_OverHttp, Chat):
    """Turns of a conversation."""

    session = "key"
