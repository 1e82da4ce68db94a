"""Stands for the chat model: it answers by script, so the example needs no network and shows the same each time."""

from __future__ import annotations

from flink_skills.models import Provider, register_provider
from flink_skills.testing import ScriptedModel, call, calls

STEPS = (
    calls(call("find_pages", words="when sent"), call("orders_of", year=2026, customer="somebody else")),
    calls(call("convert", francs=9.0, currency="GBP")),
    calls(call("convert", francs=9.0, currency="EUR")),
    "Order 17 is sent within two days; it is 9.54 euro.",
)


def use_script() -> ScriptedModel:
    """Make ``chain-script`` a provider of models; its model, which keeps the requests that it gets."""
    model = ScriptedModel(STEPS, name="chain-script:model")
    register_provider(Provider("chain-script", lambda setup, config: model, strategies=False))
    return model
