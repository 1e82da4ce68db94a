"""Names, kinds and attributes of spans, by the conventions for generative AI where they have a word for it.

The conventions are a document of their own and still in development; the names are written out here, because the
constants of the Python packages come and go with its versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.trace import SpanKind

from flink_skills.telemetry.activity import Activity, Note, TurnScope
from flink_skills.telemetry.tracing.content import Content, plain
from flink_skills.telemetry.tracing.messages import finish_reason

__all__ = [
    "FOR_SAMPLERS",
    "at_end",
    "at_start",
    "event_of",
    "model_name",
    "provider_name",
    "span_kind",
    "span_name",
]

# Where the conventions have another name for a provider than its setup.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gen_ai",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "grok": "x_ai",
    "mistral": "mistral_ai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
_REQUEST_SETTINGS = {
    "frequency_penalty": float,
    "max_tokens": int,
    "presence_penalty": float,
    "seed": int,
    "temperature": float,
    "top_k": int,
    "top_p": float,
}
# Parts of the tokens in and out.
_USAGE_DETAILS = {
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
# Attributes that hold texts, which Content has made fit already and which may have lines.
_TEXTS = (
    "error.message",
    "flink_skills.command.std",
    "gen_ai.conversation.id",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.request.stop_sequences",
    "gen_ai.system_instructions",
    "gen_ai.tool.call.",
    "process.command_line",
)
_LONGEST = 512
#: What a sampler sees of a span when it decides.
FOR_SAMPLERS = (
    "flink_skills.agent",
    "gen_ai.agent.name",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.tool.name",
)
_SKILL_NOTE = ("action", "outcome", "digest", "origin")
_OPERATIONS = {"turn": "invoke_agent", "agent": "invoke_agent", "chat": "chat", "tool": "execute_tool"}


def provider_name(setup: Any) -> str:
    """The provider of a model setup, as the conventions call it."""
    name = str(getattr(setup, "provider", "") or "")
    return _PROVIDERS.get(name, name)


def model_name(chat: Activity) -> str:
    """The model that a chat asks; of a provider that has only one, such as the offline one, the provider."""
    setup = chat.attributes.get("setup")
    return str(getattr(setup, "model", "") or getattr(setup, "provider", "") or chat.name)


def span_kind(activity: Activity) -> SpanKind:
    """A model is elsewhere; all the rest happens here."""
    return SpanKind.CLIENT if activity.kind == "chat" else SpanKind.INTERNAL


def _shown_name(activity: Activity, content: Content) -> str:
    """The name of an activity; not that of a tool which a model made up, which may be anything."""
    return activity.name if content.full or activity.attributes.get("known", True) else "unknown"


def span_name(activity: Activity, content: Content) -> str:
    """``chat MODEL``, ``execute_tool TOOL``, ``command PROGRAM``, ``stage SKILL``."""
    name = _shown_name(activity, content)
    if activity.kind == "chat":
        name = model_name(activity)
    return plain(content.hidden(f"{_OPERATIONS.get(activity.kind, activity.kind)} {name}"))


def at_start(activity: Activity, content: Content) -> dict[str, Any]:
    """What is known when ``activity`` begins."""
    found = _of_turn(activity.scope) if activity.kind == "turn" else _of_part(activity.scope)
    if activity.step:
        found["flink_skills.step"] = plain(activity.step, 512)
    if activity.kind in _OPERATIONS:
        found["gen_ai.operation.name"] = _OPERATIONS[activity.kind]
    if activity.kind in ("turn", "agent", "chat"):
        scope = activity.scope
        found["gen_ai.conversation.id"] = content.text(scope.key) if content.full else scope.key_hash
    call_id = activity.attributes.get("call_id")
    if activity.kind in ("turn", "agent"):
        found["gen_ai.agent.name"] = found["gen_ai.agent.id"] = plain(activity.name)
    elif activity.kind == "chat":
        found.update(_of_request(activity, content))
    elif activity.kind == "tool":
        found["gen_ai.tool.name"] = plain(_shown_name(activity, content))
        found["gen_ai.tool.type"] = "function"
        found["gen_ai.tool.call.id"] = call_id
        found["flink_skills.model"] = activity.attributes.get("model")
        found.update(content.arguments(activity.attributes.get("arguments", "")))
    elif activity.kind == "command":
        found["process.executable.name"] = plain(activity.name)
        found["flink_skills.call_id"] = call_id
        found["flink_skills.skill.name"] = activity.attributes.get("skill")
        found["flink_skills.command.isolation"] = activity.attributes.get("isolation")
        found["flink_skills.command.interactive"] = bool(activity.attributes.get("interactive"))
        found.update(content.command(activity.attributes.get("command", "")))
    elif activity.kind in ("stage", "collect"):
        found["flink_skills.call_id"] = call_id
        found["flink_skills.skill.name"] = activity.attributes.get("skill")
    elif call_id:
        found["flink_skills.call_id"] = call_id
    return _known(found, content)


def _of_part(scope: TurnScope) -> dict[str, Any]:
    """What all spans of a turn have."""
    return {"flink_skills.agent": scope.agent, "flink_skills.turn.attempt": scope.attempt}


def _of_turn(scope: TurnScope) -> dict[str, Any]:
    return {
        **_of_part(scope),
        "flink_skills.turn.id": scope.turn_id,
        "flink_skills.turn.number": scope.turn,
        "flink_skills.turn.resumed_steps": scope.resumed,
        "flink_skills.key.hash": scope.key_hash,
        "flink_skills.event.timestamp": scope.timestamp,
    }


def _of_request(activity: Activity, content: Content) -> dict[str, Any]:
    request, setup = activity.attributes["request"], activity.attributes.get("setup")
    found: dict[str, Any] = {
        "gen_ai.provider.name": provider_name(setup),
        "gen_ai.request.model": model_name(activity),
        "gen_ai.output.type": "json" if request.output_schema is not None else "text",
        "flink_skills.model": plain(activity.name),
        "flink_skills.fallback_of": activity.attributes.get("fallback_of"),
    }
    for name, of in _REQUEST_SETTINGS.items():
        value = request.settings.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"gen_ai.request.{name}"] = of(value)
    stops = request.settings.get("stop_sequences")
    if content.full and isinstance(stops, (list, tuple)):
        found["gen_ai.request.stop_sequences"] = [content.text(str(stop)) for stop in stops]
    address = urlsplit(getattr(setup, "base_url", None) or "")
    if address.hostname:
        found["server.address"] = address.hostname
        found["server.port"] = address.port or (443 if address.scheme == "https" else 80)
    return {**found, **content.request(request)}


def at_end(activity: Activity, content: Content, digests: Mapping[str, str]) -> dict[str, Any]:
    """What is known when ``activity`` has ended; ``digests`` are those of skills by name."""
    given = activity.attributes
    found: dict[str, Any] = {}
    if isinstance(given.get("cost"), (int, float)):
        found["flink_skills.cost"] = float(given["cost"])
    if given.get("skills"):
        names = list(given["skills"])
        found["flink_skills.skill.names"] = names
        found["flink_skills.skill.digests"] = [digests.get(name, "") for name in names]
    if activity.kind == "turn" and "steps" in given:
        found.update(_of_usage(given.__getitem__))
        for name in ("requests", "steps", "replayed", "outputs"):
            found[f"flink_skills.turn.{name}"] = given[name]
    elif activity.kind == "chat" and "response" in given:
        response = given["response"]
        found.update(_of_usage(partial(getattr, response.usage)))
        found["gen_ai.response.finish_reasons"] = [finish_reason(response)]
        found.update(content.response(response))
    elif activity.kind == "tool" and "content" in given:
        found["flink_skills.tool.is_error"] = bool(given.get("is_error"))
        found.update(content.result(given["content"]))
    elif activity.kind in ("stage", "collect"):
        for name in ("files", "bytes"):
            found[f"flink_skills.{activity.kind}.{name}"] = given.get(name)
    elif activity.kind == "command":
        if given.get("skill") in digests:
            found["flink_skills.skill.digest"] = digests[given["skill"]]
        if given.get("result") is not None:
            found.update(_of_result(given["result"], content))
    return _known(found, content)


def _of_usage(tokens: Callable[[str], Any]) -> dict[str, int]:
    """Return the attributes of a usage, with those of its details that are not 0.

    Args:
        tokens: Returns a count of the usage by its name.
    """
    found = {f"gen_ai.usage.{name}": tokens(name) for name in ("input_tokens", "output_tokens")}
    found.update({attribute: tokens(name) for name, attribute in _USAGE_DETAILS.items() if tokens(name)})
    return found


def _of_result(result: Any, content: Content) -> dict[str, Any]:
    found = {
        "process.exit.code": result.exit_code,
        "flink_skills.command.signal": result.signal,
        "flink_skills.command.limit": result.limit,
        "flink_skills.command.timed_out": bool(result.timed_out),
    }
    return {**found, **content.output(result.stdout, result.stderr)}


def event_of(note: Note, content: Content) -> tuple[str, dict[str, Any]]:
    """A note as the event of a span: its name and attributes."""
    given = note.attributes
    found: dict[str, Any] = {}
    if note.kind == "skill":
        found.update({f"flink_skills.skill.{name}": given.get(name) for name in _SKILL_NOTE})
        found["flink_skills.skill.name"] = given.get("skill")
        if content.metadata:
            found["flink_skills.skill.path"] = given.get("path")
    elif note.kind == "retry":
        found.update({f"flink_skills.retry.{name}": given.get(name) for name in ("attempt", "pause")})
        if content.full:
            found["error.message"] = content.text(str(given.get("error", "")))
    elif note.kind == "fallback":
        found["flink_skills.fallback.model"] = given.get("model")
        if content.full:
            found["error.message"] = content.text(str(given.get("error", "")))
    elif note.kind == "restart":
        found.update({f"flink_skills.restart.{name}": given.get(name) for name in ("step", "problem", "steps")})
    else:
        found.update({f"flink_skills.{note.kind}.{name}": given.get(name) for name in ("code", "severity", "skill")})
    return f"flink_skills.{note.kind}", _known(found, content)


def _known(attributes: Mapping[str, Any], content: Content) -> dict[str, Any]:
    return {name: _fit(name, value, content) for name, value in attributes.items() if value is not None and value != ""}


def _fit(name: str, value: Any, content: Content) -> Any:
    if isinstance(value, str):
        # Names, too, may be anybody's: a skill's origin, a step, a tool.
        return value if name.startswith(_TEXTS) else plain(content.hidden(value), _LONGEST)
    return [plain(content.hidden(str(item))) for item in value] if isinstance(value, list) else value
