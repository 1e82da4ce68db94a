"""Stands for the chat model: it answers by script, so the example needs no network and each mode sees the same."""

from __future__ import annotations

from flink_skills.models import Provider, register_provider
from flink_skills.testing import ScriptedModel, call, calls

# Two events of one conversation. The skill is loaded for the first one only.
QUESTIONS = ("May I book the Rivoli in Paris?", "And the Forum in Rome?")
STEPS = (
    calls(call("skill_load", skill="travel-costs", docs=["references/limits.md"])),
    calls(call("price_of", hotel="Rivoli"), prefix="rivoli"),
    "Yes: it costs 180 euro a night, and the limit in Paris is 190.",
    calls(call("price_of", hotel="Forum"), prefix="forum"),
    "No: it costs 175 euro a night, and the limit in Rome is 160.",
)


def use_script() -> ScriptedModel:
    """Make ``script`` a provider of models; its model, which keeps the requests that it gets."""
    model = ScriptedModel(STEPS, name="script:rules")
    register_provider(Provider("script", lambda setup, config: model, strategies=False), replace=True)
    return model
