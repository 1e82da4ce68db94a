"""Agents whose skills come from everywhere, shipped with ``-pyfs``. They import nothing of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flink_skills import (
    Agent,
    AgentContext,
    ResourceDescriptor,
    ResourceName,
    TurnError,
    chat_model_setup,
    skills,
)

SKILLS = ("s3-a", "s3-b", "jar-a", "jar-b", "dir-a", "dir-b")


def offline(*names: str) -> ResourceDescriptor:
    return ResourceDescriptor(clazz=ResourceName.ChatModel.OFFLINE_SETUP, skill_names=list(names) or None)


class JobSkillsOnly(Agent):
    """Sees what the job declares; its models see less."""

    name = "plain"

    @chat_model_setup
    @staticmethod
    def everything() -> ResourceDescriptor:
        return offline()

    @chat_model_setup
    @staticmethod
    def mixed() -> ResourceDescriptor:
        return offline("s3-a", "jar-b")

    async def on_event(self, event: str, ctx: AgentContext) -> str:
        """What each model may load, as ``agent,event,model=skill+skill,…``, with what the files of the skills say."""
        parts = [self.name, event]
        for model in ("everything", "mixed"):
            found = []
            for skill in SKILLS:
                text = await self.read(ctx, model, skill)
                if text is not None:
                    assert text == f"this is {skill}\n", text
                    found.append(skill)
            parts.append(f"{model}={'+'.join(found)}")
        return ",".join(parts)

    async def read(self, ctx: AgentContext, model: str, skill: str) -> str | None:
        try:
            await ctx.call_tool("load_skill", model=model, name=skill)
        except TurnError:
            return None
        part: Any = await ctx.call_tool("load_skill_resource", model=model, name=skill, path="references/where.txt")
        return str(part["text"])


class WithFolder(JobSkillsOnly):
    """Brings a folder of its own."""

    name = "folder"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @skills
    def own(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[self.folder])

    @chat_model_setup
    @staticmethod
    def mixed() -> ResourceDescriptor:
        return offline("s3-b", "dir-a")


class CrashOnce:
    """A map function that fails the job the first time that it sees an event, on the whole machine."""

    def __init__(self, event: str, marker: str) -> None:
        self.event, self.marker = event, marker

    def __call__(self, event: str) -> str:
        if event == self.event and not Path(self.marker).exists():
            Path(self.marker).touch()
            raise RuntimeError("crash, as asked")
        return event
