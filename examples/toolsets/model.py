"""Stands for the chat model: it asks for the discount in any case, and says what it was told."""

from __future__ import annotations

from flink_skills.models import ModelRequest, ModelResponse, Provider, ToolMessage, register_provider
from flink_skills.testing import ScriptedModel, call, calls


def answer(request: ModelRequest) -> str | ModelResponse:
    """What it says next."""
    results = [message for message in request.messages if isinstance(message, ToolMessage)]
    if not results:
        return calls(call("price", article="tea"), call("discount", article="tea"))
    price, discount = results
    off = "no discount" if discount.is_error else f"{discount.content} off"
    return f"Tea is {price.content} francs, {off}."


def use_script() -> ScriptedModel:
    """Make ``choice-script`` a provider of models; its model, which keeps the requests that it gets."""
    model = ScriptedModel(answer, name="choice-script:model")
    register_provider(Provider("choice-script", lambda setup, config: model, strategies=False))
    return model
