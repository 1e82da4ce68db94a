"""Stands for the chat model: it reads what the script asks and answers it, so the example needs no network."""

from __future__ import annotations

import json
from typing import Any

from flink_skills.models import ModelRequest, ModelResponse, Provider, ToolMessage, register_provider
from flink_skills.testing import ScriptedModel, call, calls

# What it answers to the questions of the script.
ANSWERS = {"Name of the topic:": "orders", "Choose a number:": "2", "Days to keep events:": "7"}


def decide(request: ModelRequest) -> ModelResponse | str:
    """Load the skill, answer the questions of its script, then look at the topic for a while."""
    results = [message for message in request.messages if isinstance(message, ToolMessage)]
    if not results:
        return calls(call("skill_load", skill="new-topic"))
    last = results[-1]
    if last.name == "skill_load":
        return calls(call("skill_exec", skill="new-topic", command="python3 scripts/create.py"))
    if last.is_error:
        return last.content
    if last.name == "skill_kill_session":
        return "The topic orders is there, compacted, and events arrive in it."
    seen: dict[str, Any] = json.loads(last.content)
    session = seen["session_id"]
    if "interaction" in seen:
        answer = ANSWERS[seen["interaction"]["hint"]]
        return calls(call("skill_write_stdin", session_id=session, chars=answer, submit=True))
    if seen["status"] == "exited":
        return calls(call("skill_exec", skill="new-topic", command="python3 scripts/watch.py"))
    watching = sum(result.name == "skill_exec" for result in results) == 2
    if watching and last.name == "skill_poll_session" and seen["output"]:
        return calls(call("skill_kill_session", session_id=session))
    return calls(call("skill_poll_session", session_id=session))


def use_script() -> ScriptedModel:
    """Make ``script`` a provider of models; its model, which keeps the requests that it gets."""
    model = ScriptedModel(decide, name="script:topics")
    register_provider(Provider("script", lambda setup, config: model, strategies=False))
    return model
