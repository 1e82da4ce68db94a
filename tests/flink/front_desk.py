"""An agent with every kind of tool, shipped like any user's module. It imports nothing of the tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flink_skills import (
    Agent,
    AgentContext,
    BaseToolSet,
    ResourceDescriptor,
    ResourceName,
    ToolContext,
    agent_tool,
    chat_model_connection,
    chat_model_setup,
    register_tool,
    skills,
    tool,
    tool_pool,
)


@register_tool
def find_city(street: str) -> str:
    """The city of a street."""
    return f"{street} is in Springfield"


def total(numbers: list[int]) -> int:
    """The sum of numbers."""
    return sum(numbers)


class Counters(BaseToolSet):
    """Tools that are made for each turn."""

    name = "counters"

    async def get_tools(self, context: ToolContext | None = None) -> Iterable[Any]:
        def of_turn() -> str:
            """Which turn of which key this is."""
            return "outside" if context is None else f"turn {context.turn} of {context.key}"

        return [of_turn]


class Modelled(Agent):
    """With a chat model at ``url``."""

    def __init__(self, url: str) -> None:
        self.url = url

    @chat_model_connection
    def server(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url=self.url)

    @chat_model_setup
    def scripted(self) -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP,
            connection="server",
            model="scripted",
            **self.settings(),
        )

    def settings(self) -> dict[str, Any]:
        """What the model says itself of the tools for skills."""
        return {}


class Librarian(Modelled):
    """Looks things up in the books."""

    name = "librarian"
    instructions = "You look things up."

    def __init__(self, url: str, books: str) -> None:
        super().__init__(url)
        self.books = books

    @skills
    def shelf(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[self.books])


class FrontDesk(Modelled):
    """Answers every event with what its tools said."""

    name = "front-desk"
    session = "key"
    instructions = "You are the front desk."

    def __init__(self, url: str, books: str) -> None:
        super().__init__(url)
        self.books = books

    def settings(self) -> dict[str, Any]:
        return {"skill_tools": "full", "skill_lifetime": "session", "max_loaded_skills": 3}

    @tool
    def ring(self) -> str:
        """Rings the bell."""
        return "ding"

    @tool(dynamic=True)
    def weigh(self, text: str) -> int:
        """Weighs a text."""
        return len(text)

    @tool_pool
    def back_office(self) -> list[Any]:
        return [total, "find_city", Counters()]

    @agent_tool
    def look_up(self) -> Agent:
        """Looks something up in the books."""
        return Librarian(self.url, self.books)

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        answer = await ctx.chat(event)
        ctx.state["turns"] = ctx.state.get("turns", 0) + 1
        return {"key": ctx.key, "case": event["case"], "turns": ctx.state["turns"], "answer": answer}
