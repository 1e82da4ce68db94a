"""Fixtures of agents, which the tests of models share."""

from tests.kit.agents import isolation, open_agent, script, skill_folder

__all__ = ["isolation", "open_agent", "script", "skill_folder"]
