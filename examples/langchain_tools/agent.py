"""The agent, and the tools that were written for LangChain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from langchain_core.documents import Document
from langchain_core.tools import InjectedToolArg, ToolException
from langchain_core.tools import tool as langchain_tool

from flink_skills import Agent, tool, tool_set
from flink_skills.integrations import LangChainTool

PAGES = [Document(page_content="Tea is sent within two days.", metadata={"page": "delivery"})]


@langchain_tool(response_format="content_and_artifact")
def find_pages(words: str) -> tuple[str, list[Document]]:
    """Find pages of the shop."""
    found = [page for page in PAGES if any(word in page.page_content.lower() for word in words.lower().split())]
    return "\n".join(page.page_content for page in found) or "nothing", found


@langchain_tool
async def orders_of(year: int, customer: Annotated[str, InjectedToolArg]) -> list[dict[str, Any]]:
    """Orders of the customer in a year."""
    return [{"number": 17, "year": year, "customer": customer}]


@langchain_tool
def convert(francs: float, currency: str) -> float:
    """An amount of francs in another currency."""
    rates = {"EUR": 1.06}
    if currency not in rates:
        raise ToolException(f"no rate for {currency}; use one of {', '.join(rates)}")
    return round(francs * rates[currency], 2)


class Shop(Agent):
    """Answers customers."""

    name = "shop"
    instructions = "You answer customers of a shop for tea. Use the tools."
    model = "chain-script:model"

    @tool_set
    def of_langchain(self) -> Sequence[LangChainTool]:
        return [
            LangChainTool(find_pages),
            LangChainTool(orders_of, injected={"customer": lambda context: context.display_key}),
        ]

    @tool
    def rates(self) -> LangChainTool:
        return LangChainTool(convert, timeout=5)
