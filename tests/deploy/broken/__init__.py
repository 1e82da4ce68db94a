"""Overlays with one thing wrong in each, by subject: the rule that must find it, the change, and its words."""

from __future__ import annotations

from tests.deploy.broken import around, flink, jobs, memory, references, skills, state, templates
from tests.deploy.broken.making import Broken, changed

__all__ = ["BROKEN", "Broken", "changed"]

BROKEN = [
    case for subject in (templates, flink, memory, state, skills, jobs, references, around) for case in subject.BROKEN
]
