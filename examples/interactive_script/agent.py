"""The agent: it makes topics for a message broker, with a script that was written for people."""

from __future__ import annotations

from flink_skills import Agent


class TopicAgent(Agent):
    """Works with programs that ask back."""

    name = "topics"
    instructions = "You make topics for a message broker. Load the skill that fits and follow it."
    model = "script:topics"
