"""The two agents. The desk talks to people; the expert is a tool of the desk."""

from __future__ import annotations

from pathlib import Path

from flink_skills import Agent, ResourceDescriptor, ResourceName, agent_tool, skills

SKILLS = Path(__file__).resolve().parent / "skills"


class MemoryExpert(Agent):
    """Knows the memory of Flink processes: says which setting to change, and to what."""

    name = "memory-expert"
    instructions = "You are asked about the memory of Flink processes. Answer with one setting and its value."
    model = "script:expert"

    @skills
    @staticmethod
    def own_skills() -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[str(SKILLS / "expert")])


class SupportDesk(Agent):
    """Answers people who run jobs."""

    name = "support-desk"
    instructions = "You answer people who run Flink jobs. Ask the expert for what you do not know."
    model = "script:desk"

    @skills
    @staticmethod
    def own_skills() -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[str(SKILLS / "desk")])

    @agent_tool
    def ask_expert(self) -> Agent:
        return MemoryExpert()
