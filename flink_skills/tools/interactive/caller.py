"""Who makes a call: it decides which processes there are."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flink_skills.tools.interactive.process import Process

__all__ = ["Caller"]


@dataclass(frozen=True)
class Caller:
    """A model that calls, in a turn of a key.

    ``owner`` stands for the job's agent and the key, whose processes count together. ``agent`` is the agent of the
    model, which may be one that the job's agent called, and ``skills`` are those the model may use.
    """

    owner: str
    agent: str
    skills: Container[str]

    def sees(self, process: Process) -> bool:
        """Whether ``process``, one of the same owner, exists for this model.

        A process of a skill has the values of ``skills.env`` for it, so it is not for models without that skill.
        """
        return process.agent == self.agent and process.skill in self.skills
