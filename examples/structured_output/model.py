"""Stands for the chat model: it decides by what it read last, so the example needs no network."""

from __future__ import annotations

from flink_skills.models import ModelRequest, ModelResponse, Provider, ToolMessage, register_provider
from flink_skills.testing import ScriptedModel, call, calls


def decide(request: ModelRequest) -> ModelResponse | str:
    """Load the skill, run its script, and answer: with too little first, then with all that is asked for."""
    last = request.messages[-1]
    results = [message for message in request.messages if isinstance(message, ToolMessage)]
    if not results:
        return calls(call("load_skill", name="invoice-check"))
    if last is results[0]:
        command = "python3 scripts/check.py $WORK_DIR/inputs/event.json"
        return calls(call("execute_shell_command", command=command))
    if last is results[1]:
        return '{"problems": "see above"}'
    found = results[1].content  # exit code, stdout and stderr
    return found[found.index("{") : found.rindex("}") + 1]


def use_script() -> ScriptedModel:
    """Make ``script`` a provider of models; its model, which keeps the requests that it gets."""
    model = ScriptedModel(decide, name="script:invoices")
    register_provider(Provider("script", lambda setup, config: model, strategies=False))
    return model
