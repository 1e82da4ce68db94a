"""The agent: it answers questions about the rules of a company. How it loads skills is an option of the job."""

from __future__ import annotations

from flink_skills import Agent, tool

PRICES = {"Rivoli": 180, "Forum": 175}


class RulesAgent(Agent):
    """Answers questions of an employee, who may ask on."""

    name = "rules"
    instructions = "You answer questions about the rules of this company. Load the skill that fits."
    model = "script:rules"
    session = "key"

    @tool
    def price_of(self, hotel: str) -> int:
        """What a hotel costs, in euro a night."""
        return PRICES[hotel]
