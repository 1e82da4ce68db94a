"""Stands for the chat model: it answers by script, so the example needs no network and shows the same each time."""

from __future__ import annotations

from flink_skills.models.registry import Provider, register_provider
from flink_skills.testing import ScriptedModel, call, calls


def use_script(port: int) -> ScriptedModel:
    """Make ``research-script`` a provider of models; its model, which keeps the requests that it gets."""
    page = f"http://docs.example.org:{port}/windows"
    steps = [
        calls(call("skill_load", skill="research")),
        calls(call("web_search", query="window for bursts of events", count=3)),
        calls(call("web_fetch", url=page)),
        calls(call("web_fetch", url="http://router.example.net/admin")),
        calls(call("web_fetch", url=f"http://docs.example.org:{port}/gone")),
        f"A session window.\n\nSources:\n[Choosing a window]({page})",
    ]
    model = ScriptedModel(steps, name="research-script")
    provider = Provider("research-script", lambda setup, config: model, needs_model=False, strategies=False)
    register_provider(provider, replace=True)
    return model
