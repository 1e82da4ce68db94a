"""The agent: its file tools are in a pool, and come with the skill that says how to use them."""

from __future__ import annotations

from flink_skills import Agent, tool_pool
from flink_skills.tools.files import FileToolSet


class ShopDoctor(Agent):
    """Corrects the program of the shop."""

    name = "shop-doctor"
    instructions = "You correct programs. Load the skill that fits and follow it."
    model = "file-script:doctor"

    @tool_pool
    @staticmethod
    def files() -> list[FileToolSet]:
        return [FileToolSet()]
