"""Agents under test. They live in a module, so workers import them as they import any user's agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flink_skills import (
    Agent,
    AgentContext,
    ResourceDescriptor,
    ResourceName,
    chat_model_connection,
    chat_model_setup,
    tool,
)
from flink_skills.manager import parse_menu
from tests.kit.flink_rest import wait_until

__all__ = ["Commander", "Echo", "Guarded", "Offerings", "Scripted", "Shop", "Tally", "Verdict"]


class Echo(Agent):
    """Says what it was given."""

    def __init__(self, name: str = "echo") -> None:
        self.name = name

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return {
            "agent": self.name,
            "key": ctx.key,
            "turn": ctx.turn,
            "event": event,
            "kind": type(event).__name__,
            "timestamp": ctx.timestamp,
        }


class Tally(Agent):
    """Counts per key, says so on a side output, and fails where the event asks for it."""

    name = "tally"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        ctx.state["seen"] = [*ctx.state.get("seen", []), event["v"]]
        ctx.emit_to("audit", {"audit": ctx.key, "seen": len(ctx.state["seen"])})
        if event["v"] < 0:
            raise ValueError(f"{event['v']} is below zero")
        ctx.emit({"key": ctx.key, "seen": list(ctx.state["seen"]), "last": event["v"]})


class Verdict(BaseModel):
    job: str
    restarts: int


class Scripted(Agent):
    """An agent whose chat model is a server at ``url``. It has attributes, so it travels by value."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "scripted",
        instructions: str = "",
        session: str = "event",
        output_type: Any = None,
        skill_names: Sequence[str] | None = None,
    ) -> None:
        self.url = url
        self.name = name
        self.instructions = instructions
        self.session = session
        self.output_type = output_type
        self.skill_names = skill_names

    @chat_model_connection
    def server(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url=self.url)

    @chat_model_setup
    def chat_model(self) -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP,
            connection="server",
            model="scripted",
            skill_names=self.skill_names,
        )

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        answer = await ctx.chat()
        return {"agent": self.name, "key": ctx.key, "answer": answer, "skills": ctx.skills}


class Shop(Scripted):
    """With tools. A call of ``meet`` gets through only while another one runs at the same time."""

    @tool
    def price(self, article: str) -> float:
        """Price of an article in euro."""
        return {"pen": 1.5, "book": 12.0}[article]

    @tool
    async def meet(self, first: bool) -> str:
        """Meets somebody: the first one waits for the second."""
        # Made here and not in the constructor: an event cannot travel to the worker.
        both_here: asyncio.Event = vars(self).setdefault("both_here", asyncio.Event())
        if first:
            await asyncio.wait_for(both_here.wait(), 20)
            return "met somebody"
        both_here.set()
        return "came second"


class Commander(Agent):
    """Loads the skill that the event names and runs the event's command. It needs no model."""

    name = "commander"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        await ctx.call_tool("load_skill", name=event["skill"])
        done = await ctx.call_tool("execute_shell_command", command=event["command"])
        return {"skill": event["skill"], "loaded": ctx.skills, **done}


class Offerings(Agent):
    """Says which skills its model is offered, where they are and what they say."""

    name = "offerings"
    model = "offline"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        names = [name for name, _ in parse_menu(ctx._generation.model(None).system)]
        found = {"names": names, "paths": {}, "bodies": {}}
        for name in names:
            loaded = await ctx.call_tool("load_skill", name=name)
            found["paths"][name] = loaded["path"]
            view = ctx._generation.model(None).view
            found["bodies"][name] = view.get(name).instructions
        return found


def wait_for_file(path: str) -> None:
    """Says by a file that somebody waits here, and waits until the file itself is there."""
    Path(path + ".reached").touch()
    wait_until(Path(path).exists, 60, path)


class Guarded(Agent):
    """Says its skills. Where the event is a path, it waits until that file is there. It carries a secret of its own."""

    name = "guarded"
    model = "offline"

    def __init__(self, token: str) -> None:
        self.token = token

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        if event.startswith("/"):
            await ctx.step("wait", wait_for_file, event)
        return [name for name, _ in parse_menu(ctx._generation.model(None).system)]
