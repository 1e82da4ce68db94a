"""The agent whose savepoints are kept. What it does for an event may get more, and nothing of it may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flink_skills import (
    Agent,
    AgentContext,
    ResourceDescriptor,
    ResourceName,
    chat_model_connection,
    chat_model_setup,
    skills,
)
from flink_skills.testing import Call, Reply

__all__ = ["HELD", "OLD_EVENTS", "Keeper", "answer", "said"]

# Waits for its model in the savepoint.
HELD = "held"
# The events of the savepoint: key, conversation, text. Those of "hot" behind the first wait for it.
OLD_EVENTS = (
    ("idle", "x", "first"),
    ("idle", "y", "other"),
    ("idle", "x", "second"),
    ("hot", "x", HELD),
    ("hot", "x", "then"),
    ("hot", "y", "last"),
)


class Keeper(Agent):
    """A step, then a chat that loads a skill; it counts, and keeps several conversations of a key apart."""

    name = "keeper"
    session = "key"
    session_selector = "chat"
    instructions = "Keep what is said."

    def __init__(self, model_url: str, skill_folder: str) -> None:
        self.model_url = model_url
        self._skill_folder = skill_folder

    @skills
    def notes(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[self._skill_folder])

    @chat_model_connection
    def server(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url=self.model_url)

    @chat_model_setup
    def model(self) -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP, connection="server", model="scripted"
        )

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        looked = await ctx.step("look", str.upper, event["text"])
        answer = await ctx.chat(event["text"])
        ctx.state["texts"] = [*ctx.state.get("texts", []), event["text"]]
        return {
            "key": ctx.key,
            "chat": ctx.session_id,
            "turn": ctx.turn,
            "looked": looked,
            "answer": answer,
            "texts": ctx.state["texts"],
        }


def said(body: Mapping[str, Any]) -> list[str]:
    """What users said in a request."""
    return [str(message["content"]) for message in body["messages"] if message["role"] == "user"]


def answer(body: Mapping[str, Any]) -> Reply:
    """Loads the skill in each turn, then tells what was said in the conversation."""
    if body["messages"][-1]["role"] == "user":
        return Reply(tool_calls=(Call("load_skill", {"name": "notes"}),))
    return Reply(" ".join(said(body)))
