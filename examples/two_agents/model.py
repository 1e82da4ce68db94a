"""Stands for the chat models of both agents: it answers by script, so the example needs no network."""

from __future__ import annotations

from flink_skills.models import Provider, register_provider
from flink_skills.testing import ScriptedModel, call, calls

QUESTION = "My job billing dies with OutOfMemoryError: Metaspace. What can I do?"

# Whose turn it is, what the model does then, and its answer.
STEPS = (
    ("desk", "loads a skill", calls(call("skill_load", skill="replies"))),
    ("desk", "asks the expert", calls(call("ask_expert", request="OutOfMemoryError: Metaspace in job billing"))),
    ("expert", "loads a skill", calls(call("skill_load", skill="memory-settings", docs=["references/areas.md"]))),
    ("expert", "answers the desk", "taskmanager.memory.jvm-metaspace.size: 512m"),
    (
        "desk",
        "answers",
        "Hello! The classes of your job need more room. Set taskmanager.memory.jvm-metaspace.size to 512m and restart.",
    ),
)


def use_script() -> ScriptedModel:
    """Make ``script`` a provider of models; the model of both agents, which keeps the requests that it gets."""
    model = ScriptedModel([answer for _, _, answer in STEPS], name="script")
    register_provider(Provider("script", lambda setup, config: model, strategies=False))
    return model
