"""The agent: it answers questions about the sales of a shop, event by event."""

from __future__ import annotations

from flink_skills import Agent


class Analyst(Agent):
    """Answers questions about sales with the skill that fits."""

    name = "analyst"
    instructions = "You answer questions about the sales of shops. Load the skill that fits and follow it."
    model = "script:analyst"
    #: The second question of a shop is about the answer to its first.
    session = "key"
