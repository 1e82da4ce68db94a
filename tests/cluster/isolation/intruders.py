"""The agent of the isolation job, shipped with ``-pyfs`` like any user's module. It imports nothing of the tests."""

from __future__ import annotations

import json
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


class Intruder(Agent):
    """Does for each event what its model says, which somebody has talked into mischief."""

    def __init__(self, model_url: str, skill_path: str) -> None:
        self.model_url = model_url
        self.skill_path = skill_path

    @skills
    def pry(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[self.skill_path])

    @chat_model_connection
    def server(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url=self.model_url)

    @chat_model_setup
    def mischief(self) -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP, connection="server", model="scripted"
        )

    async def on_event(self, event: Any, ctx: AgentContext) -> str:
        ctx.state["secret"] = f"state of {ctx.key}"
        answer = await ctx.chat(f"Event {ctx.key} {event['what']}.")
        return json.dumps({"key": ctx.key, "what": event["what"], "turn": ctx.turn, "answer": answer})
