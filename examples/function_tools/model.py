"""Stands for the chat model: it answers by script, so the example needs no network and shows the same each time."""

from __future__ import annotations

from flink_skills.models import Provider, register_provider
from flink_skills.testing import ScriptedModel, call, calls

STEPS = (
    calls(call("price", article="tea", count=2), call("stock", article="tea"), call("price")),
    calls(call("convert", amount=9.0, currency="GBP"), call("delivery_days", to={"city": "Ulm", "country": "DE"})),
    calls(call("convert", amount=9.0, currency="EUR"), call("book", article="tea", count=2)),
    "Two packs of tea are 9.54 euro and arrive in five days. They are booked.",
)


def use_script() -> ScriptedModel:
    """Make ``shop-script`` a provider of models; its model, which keeps the requests that it gets."""
    model = ScriptedModel(STEPS, name="shop-script:model")
    register_provider(Provider("shop-script", lambda setup, config: model, strategies=False))
    return model
