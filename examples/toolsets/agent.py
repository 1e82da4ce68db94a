"""The agent, and the tool set that looks at whose turn it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flink_skills import Agent, BaseToolSet, ToolContext, tool_set

VIPS = ("ada",)


class ShopTools(BaseToolSet):
    """Tools of the shop."""

    name = "shop"
    log: list[str] = []  # noqa: RUF012 - what the example shows

    async def initialize(self) -> None:
        """Open what all turns of the worker share."""
        self.stock_of = {"tea": 12}
        self.log.append("opened")

    async def get_tools(self, context: ToolContext) -> Iterable[Callable[..., Any]]:
        """All tools for a customer who pays for it, one for the others."""
        return [self.price, self.discount, self.stock] if context.key in VIPS else [self.price]

    def prompt_addition(self) -> str:
        """Models that have a tool of the set read this."""
        return "Prices are in francs."

    async def close(self) -> None:
        """Close it with the worker."""
        self.log.append("closed")

    def price(self, article: str) -> float:
        """Price of an article."""
        return {"tea": 4.5}.get(article, 0.0)

    def discount(self, article: str) -> str:
        """Discount of this customer on an article."""
        return "10 %"

    def stock(self, article: str) -> int:
        """How many of an article there are."""
        return self.stock_of.get(article, 0)


class Shop(Agent):
    """Answers customers."""

    name = "shop"
    instructions = "You answer customers of a shop for tea."
    model = "choice-script:model"

    @tool_set
    def of_the_shop(self) -> ShopTools:
        return ShopTools()
