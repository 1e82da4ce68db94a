"""The agent whose savepoints have turns that wait. It can get more kinds of events; the present kinds do not change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flink_skills import Agent, AgentContext, WaitTimeout, later, tool

__all__ = ["EARLY", "OLD_ANSWERS", "OLD_EVENTS", "OPEN", "Asker"]

# The events of the savepoint: key, kind, text. The second event of "queue" is behind the turn that waits.
OLD_EVENTS = (
    ("one", "ask", "coat"),
    ("queue", "ask", "hat"),
    ("queue", "ask", "bag"),
    ("two", "both", "shoes"),
    ("nap", "sleep", "300"),
    ("tool", "refund", "gloves"),
    ("late", "limited", "300"),
)
# Answers of the savepoint: key, wait, answer. The first has no question yet; the second is one of two.
EARLY = "early"
OLD_ANSWERS = (
    (EARLY, "approval", {"approved": True, "by": "ann"}),
    ("two", "finance", {"approved": True, "by": "bob"}),
)
# Waits that are open in the savepoint, by key. Sleeps have no records.
OPEN = {"one": ["approval"], "queue": ["approval"], "two": ["legal"], "tool": ["approval"], "late": ["approval"]}


class Vote(BaseModel):
    """An answer."""

    approved: bool
    by: str


class Asker(Agent):
    """Waits in all ways."""

    name = "asker"
    session = "key"
    approve_tools = ("refund",)

    def __init__(self, steps: Path) -> None:
        self.steps = str(steps)

    @tool(idempotent=False)
    def refund(self, item: str) -> str:
        """Refund an item."""
        return self._note(f"refunded {item}")

    def approve(self, request: Any) -> Any:
        return later(f"Refund {request.arguments['item']}?")

    def _note(self, text: str) -> str:
        with Path(self.steps).open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        return text

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        kind, text = event["kind"], event["text"]
        noted = await ctx.step("look", self._note, f"looked at {text}")
        ctx.state["texts"] = [*ctx.state.get("texts", []), text]
        result: Any = None
        if kind == "ask":
            vote = await ctx.wait("approval", {"item": text}, question=f"Pay {text}?", answer_type=Vote)
            result = f"{vote.approved} by {vote.by}"
        elif kind == "both":
            votes = await asyncio.gather(*(ctx.wait(name, answer_type=Vote) for name in ("finance", "legal")))
            result = [vote.by for vote in votes]
        elif kind == "sleep":
            await ctx.sleep(float(text))
            result = "slept"
        elif kind == "refund":
            result = await ctx.call_tool("refund", {"item": text})
        elif kind == "limited":
            try:
                result = await ctx.wait("approval", timeout=float(text))
            except WaitTimeout as error:
                result = str(error)
        return {"key": ctx.key, "turn": ctx.turn, "noted": noted, "result": result, "texts": ctx.state["texts"]}
