"""Stands for the chat model, so that the example needs no network."""

from __future__ import annotations

import json

from flink_skills.models import ModelRequest, ModelResponse, Provider, ToolMessage, register_provider
from flink_skills.testing import ScriptedModel, call, calls


def decide(request: ModelRequest) -> ModelResponse | str:
    """Call the tool for the order of the event, and answer with its result."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return last.content
    order = json.loads(last.content[last.content.index("{") :])
    return calls(call("pay_refund", order=order["order"], cents=order["cents"]))


# Workers import the module of the agent, and with it this provider.
register_provider(Provider("refunds", lambda setup, config: ScriptedModel(decide, name="refunds"), strategies=False))
