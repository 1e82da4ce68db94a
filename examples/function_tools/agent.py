"""The agent: a tool of every form that a function may have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from flink_skills import Agent, FunctionTool, ToolContext, register_tool, tool, tool_set

PRICES = {"tea": 4.5, "cup": 9.0}


class Address(BaseModel):
    """Where to send something."""

    city: str
    country: Literal["CH", "DE", "AT"] = "CH"


@register_tool("delivery_days")
def delivery_days(to: Address) -> int:
    """Days until an order arrives.

    Args:
        to: Where the customer lives.
    """
    return 2 if to.country == "CH" else 5


class Rate:
    """A callable object: what it needs is set where it is made."""

    def __init__(self, rates: dict[str, float]) -> None:
        self.rates = rates

    def __call__(self, amount: float, currency: str) -> float:
        """An amount of francs in another currency."""
        if currency not in self.rates:
            raise LookupError(f"there is no rate for {currency}; there are {', '.join(self.rates)}")
        return round(amount * self.rates[currency], 2)


class Shop(Agent):
    """Answers customers of a shop."""

    name = "shop"
    instructions = "You answer customers of a shop for tea. Use the tools."
    model = "shop-script:model"

    @tool
    def price(self, article: str, count: Annotated[int, Field(ge=1, le=99)] = 1) -> dict[str, Any]:
        """Price of an article.

        Args:
            article: Its name.
            count: How many.

        Returns:
            ``article`` and ``francs``.
        """
        return {"article": article, "francs": count * PRICES[article]}

    @tool
    async def stock(self, article: str) -> int:
        """How many of an article there are."""
        await asyncio.sleep(0)  # stands for a request
        return {"tea": 12, "cup": 0}.get(article, 0)

    @tool(idempotent=False, timeout=10)
    def book(self, article: str, count: int, context: ToolContext) -> str:
        """Book articles for the customer."""
        # A booking service would be given context.call_id, and book once for each.
        again = " again" if context.attempt > 1 else ""
        return f"booked{again}: {count} {article} for {context.key}, id of {len(context.call_id)} characters"

    @tool_set
    def more(self) -> Sequence[FunctionTool | str]:
        return [FunctionTool(Rate({"EUR": 1.06, "USD": 1.25}), name="convert"), "delivery_days"]
