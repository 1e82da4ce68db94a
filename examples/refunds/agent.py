"""The agent: it pays small refunds, and asks a person about others."""

from __future__ import annotations

from typing import Any

from examples.refunds import model as _model  # noqa: F401 - registers the provider of the model
from flink_skills import Agent, ApprovalRequest, later, tool

__all__ = ["Refunds"]

#: Refunds up to this amount need no person.
LIMIT_CENTS = 5_000


class Refunds(Agent):
    """Refund orders."""

    name = "refunds"
    model = "refunds:clerk"  # model = "openai:NAME" for a real model
    instructions = "You refund orders. Call pay_refund with the order and its amount, and answer with its result."
    approve_tools = ("pay_refund",)

    @tool(idempotent=False)
    def pay_refund(self, order: str, cents: int) -> str:
        """Pay a refund.

        Args:
            order: The order.
            cents: The amount in cents.
        """
        return f"paid {cents / 100:.2f} EUR for order {order}"

    def approve(self, request: ApprovalRequest) -> Any:
        cents = request.arguments["cents"]
        if cents <= LIMIT_CENTS:
            return True
        event = request.event
        return later(
            f"Refund {cents / 100:.2f} EUR to {event['customer']}?",
            timeout="2 d",
            on_timeout="refuse",
            payload={"reason": event["reason"]},
        )
