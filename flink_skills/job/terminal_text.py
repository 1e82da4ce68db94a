"""Text of others for the terminal: see :mod:`flink_skills.texts`."""

from flink_skills.texts import visible

__all__ = ["visible"]
