"""Agents whose skills come from everywhere, shipped with ``-pyfs``. They import nothing of the tests."""

from __future__ import annotations

import time
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

EVENTS = tuple(f"e{number}" for number in range(40))
SKILLS = ("s3-a", "s3-b", "jar-a", "jar-b", "dir-a", "dir-b")


def offline(*names: str) -> ResourceDescriptor:
    return ResourceDescriptor(clazz=ResourceName.ChatModel.OFFLINE_SETUP, skill_names=list(names) or None)


class JobSkillsOnly(Agent):
    """Sees what the job declares; its models see less. Leaves a file for each event in the folder ``seen``, if any."""

    name = "plain"

    def __init__(self, seen: str | None = None) -> None:
        self.seen = seen

    @chat_model_setup
    @staticmethod
    def everything() -> ResourceDescriptor:
        return offline()

    @chat_model_setup
    @staticmethod
    def mixed() -> ResourceDescriptor:
        return offline("s3-a", "jar-b")

    async def on_event(self, event: Any, ctx: AgentContext) -> str:
        """What each model may load, as ``agent,event,model=skill+skill,…``, with what the files of the skills say."""
        parts = [self.name, event["id"]]
        for model in ("everything", "mixed"):
            found = []
            for skill in SKILLS:
                text = await self.read(ctx, model, skill)
                if text is not None:
                    assert text == f"this is {skill}\n", text
                    found.append(skill)
            parts.append(f"{model}={'+'.join(found)}")
        self.note(event["id"])
        return ",".join(parts)

    def note(self, event: str) -> None:
        if self.seen is not None:
            Path(self.seen, f"{self.name}-{event}").touch()

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

    def __init__(self, folder: str, seen: str | None = None) -> None:
        super().__init__(seen)
        self.folder = folder

    @skills
    def own(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[self.folder])

    @chat_model_setup
    @staticmethod
    def mixed() -> ResourceDescriptor:
        return offline("s3-b", "dir-a")


class CrashOnce:
    """A map function that fails the job the first time that it gets the last event, on the whole machine.

    It does so once the agents have seen all events of the other subtasks: then all agents are open, and no other
    Python task is in its first bundle, where PyFlink does not survive a cancel (it ends the TaskManager).
    """

    def __init__(self, marker: str, seen: str) -> None:
        self.marker, self.seen = marker, seen
        self.mine: set[str] = set()

    def __call__(self, event: Any) -> Any:
        self.mine.add(event["id"])
        if event["id"] == EVENTS[-1] and not Path(self.marker).exists():
            awaited = {
                f"{agent}-{other}" for agent in ("plain", "folder") for other in EVENTS if other not in self.mine
            }
            deadline = time.monotonic() + 90
            while left := awaited - {file.name for file in Path(self.seen).iterdir()}:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the agents have not seen {sorted(left)}")
                time.sleep(0.1)
            Path(self.marker).touch()
            raise RuntimeError("crash, as asked")
        return event
