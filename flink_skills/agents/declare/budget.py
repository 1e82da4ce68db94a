"""The budget of an agent that is a tool, and what an agent has spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flink_skills.agents.state.codec import usage_to_json
from flink_skills.errors import LimitError
from flink_skills.models.messages import NO_USAGE, Usage

__all__ = ["NOTHING_SPENT", "NO_BUDGET", "Budget", "BudgetError", "Spent"]


@dataclass(frozen=True)
class Spent:
    """Steps and tokens of an agent in a turn, with those of the agents that it called. Adds up with ``+``."""

    steps: int = 0
    usage: Usage = NO_USAGE

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.steps + other.steps, self.usage + other.usage)

    def to_json(self) -> list[int]:
        """Return the journal form."""
        return [self.steps, *usage_to_json(self.usage)]

    @classmethod
    def from_json(cls, data: Sequence[int]) -> Spent:
        """Read the journal form."""
        return cls(data[0], Usage(*data[1:]))


NOTHING_SPENT = Spent()


@dataclass(frozen=True)
class Budget:
    """Maximum number of steps and tokens of one agent in a turn, with the agents that it calls.

    0 means that only the limit of the turn applies.
    """

    steps: int = 0
    tokens: int = 0

    def check(self, steps: int, usage: Usage) -> None:
        """Raise :class:`BudgetError` for more."""
        if 0 < self.steps < steps:
            raise BudgetError(self, f"the agent did not return an answer within its {self.steps} steps")
        if 0 < self.tokens < usage.total_tokens:
            raise BudgetError(self, f"the agent used {usage.total_tokens} of at most {self.tokens} tokens")


class BudgetError(LimitError):
    """An agent that is a tool has spent its budget. The error ends its call, not the turn."""

    def __init__(self, budget: Budget, problem: str) -> None:
        super().__init__(problem)
        self.budget = budget


NO_BUDGET = Budget()
