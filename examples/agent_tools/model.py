"""Stands for the chat models: each answers by its own script, so the example needs no network."""

from __future__ import annotations

from flink_skills.models import ModelRequest, ModelResponse, Provider, register_provider
from flink_skills.testing import ScriptedModel, call, calls

STEPS: dict[str, tuple[str | ModelResponse, ...]] = {
    "clerk": ("Order 17 is three days late.", '{"number": 17, "state": "in Basel", "days_late": 3}'),
    "writer": ("Your order 17 is three days late, and in Basel now. We are sorry.",),
    "desk": (
        calls(call("look_up", number=17)),
        calls(call("write", request="Order 17 is in Basel, three days late.")),
    ),
}


def use_script() -> ScriptedModel:
    """Make ``team-script`` a provider of models; its model, which keeps the requests that it gets."""
    left = {name: list(steps) for name, steps in STEPS.items()}

    def answer(request: ModelRequest) -> str | ModelResponse:
        return left[who(request)].pop(0)

    model = ScriptedModel(answer, name="team-script")
    register_provider(Provider("team-script", lambda setup, config: model, strategies=False))
    return model


def who(request: ModelRequest) -> str:
    """Whose request it is."""
    return next(name for name in STEPS if f"You are the {name}." in request.system)
