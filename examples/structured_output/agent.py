"""The agent: what it emits are objects of a type, not texts."""

from __future__ import annotations

from pydantic import BaseModel, Field

from flink_skills import Agent


class Verdict(BaseModel):
    """What is wrong with an invoice."""

    invoice: str
    total: float = Field(description="The right total in euro.", ge=0)
    problems: list[str] = Field(description="Empty for an invoice that is right.")


class InvoiceAgent(Agent):
    """Checks invoices."""

    name = "invoices"
    instructions = "You check invoices. Load the skill that fits and follow it."
    model = "script:invoices"
    output_type = Verdict
