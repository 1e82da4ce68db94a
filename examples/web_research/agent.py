"""The agent: two tools of the web, which a skill brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from flink_skills import Agent, ResourceDescriptor, Tool, chat_model_setup, tool_pool


class ResearchAgent(Agent):
    """Answers questions from pages of the web."""

    instructions = "Load the skill that fits the question."
    web: ClassVar[Sequence[Tool]] = ()

    @chat_model_setup
    @staticmethod
    def model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="research-script.setup", skill_tools="full", skill_lifetime="session")

    @tool_pool
    @staticmethod
    def tools() -> Sequence[Tool]:
        return ResearchAgent.web
