"""The agent: a pool of twelve tools, none of which a model has before it loads a skill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from examples.dynamic_tools import tools
from flink_skills import Agent, ResourceDescriptor, chat_model_setup, prompt, tool_pool


class ShopAgent(Agent):
    """Answers customers of a web shop."""

    @prompt
    @staticmethod
    def instructions() -> str:
        return "You work for a web shop. Load the skill that fits the customer's question, and answer in a sentence."

    @chat_model_setup
    @staticmethod
    def model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="shop-script.setup", skill_tools="full", skill_lifetime="session")

    @tool_pool
    @staticmethod
    def business_tools() -> Sequence[Callable[..., Any]]:
        return tools.ALL
