"""Stands for the chat model: it decides by what it read last, so the example needs no network."""

from __future__ import annotations

import json

from flink_skills.models import ModelRequest, ModelResponse, Provider, ToolMessage, UserMessage, register_provider
from flink_skills.testing import ScriptedModel, call, calls

# The event has a file: sum it up, and keep what comes of it.
SUMMARISE = call(
    "skill_run",
    skill="sales-report",
    command="python3 scripts/summarise.py $WORK_DIR/inputs/sales.csv",
    outputs={"globs": ["$OUTPUT_DIR/*"], "save": True},
)
# It has none: go on from the table that an earlier event left.
SHARES = call(
    "skill_run",
    skill="sales-report",
    command="python3 scripts/shares.py $WORK_DIR/inputs/regions.csv",
    inputs=[{"from": "artifact://out/regions.csv"}],
)


def decide(request: ModelRequest) -> ModelResponse | str:
    """Load the skill, run its script, and answer with what that printed."""
    last = request.messages[-1]
    if not isinstance(last, ToolMessage):
        return calls(call("skill_load", skill="sales-report"))
    if last.name == "skill_load":
        event = [message.content for message in request.messages if isinstance(message, UserMessage)][-1]
        return calls(SUMMARISE if "work/inputs/sales.csv" in event else SHARES)
    if last.is_error:
        return last.content
    return str(json.loads(last.content)["stdout"]).rstrip()


def use_script() -> None:
    """Make ``script`` a provider of models."""
    model = ScriptedModel(decide, name="script:analyst")
    register_provider(Provider("script", lambda setup, config: model, strategies=False))
