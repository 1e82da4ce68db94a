"""Stands for the chat model: it answers by script, so the example needs no network and shows the same each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flink_skills.models.registry import Provider, register_provider
from flink_skills.testing import ScriptedModel, call, calls


def use_script(stop: Callable[[], None], start: Callable[[], None]) -> ScriptedModel:
    """Make ``travel-script`` a provider of models; its model, which keeps the requests that it gets.

    ``stop`` and ``start`` are called for the server behind HTTP, between two steps of the turn.
    """
    steps = _steps(stop, start)
    model = ScriptedModel(lambda request: next(steps), name="travel-script")
    provider = Provider("travel-script", lambda setup, config: model, needs_model=False, strategies=False)
    register_provider(provider, replace=True)
    return model


def _steps(stop: Callable[[], None], start: Callable[[], None]) -> Iterator[Any]:
    yield calls(call("far_get_prompt", name="packing", arguments={"city": "Lisbon"}), call("far_list_resources"))
    yield calls(call("far_get_weather", city="Lisbon"), call("near_calculate", expression="(24 * 9 / 5) + 32"))
    yield calls(call("far_get_weather", city="Atlantis"))
    stop()
    yield calls(call("far_get_weather", city="Berlin"))
    start()
    yield calls(call("far_get_weather", city="Berlin"))
    yield "Lisbon has 24 °C, that is 75.2 °F: pack a hat. Berlin has rain: pack a coat."
