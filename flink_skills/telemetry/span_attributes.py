"""Names, kinds and attributes of spans, following the OpenTelemetry conventions for generative AI.

The conventions are still in development. This module contains the names as literals, because the constants of the
Python packages change between versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.trace import SpanKind

from flink_skills.telemetry.activity import Activity, PointEvent, TurnScope
from flink_skills.telemetry.span_content import Content, finish_reason, plain

# Providers whose name in the conventions differs from the name in a model setup.
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
# Subsets of the input and output tokens.
_USAGE_DETAILS = {
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
# Prefixes of attributes with text that Content has already cleaned. The text can contain newlines.
_CLEAN_PREFIXES = (
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
_MAX_LENGTH = 512
#: Attributes of a span that an OpenTelemetry sampler receives.
SAMPLER_ATTRIBUTES = (
    "flink_skills.agent",
    "gen_ai.agent.name",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.tool.name",
)
# Details of point events that are attributes of the same name.
_EVENT_DETAILS = {
    "skill": ("action", "outcome", "digest", "origin"),
    "retry": ("attempt", "pause"),
    "fallback": ("model",),
    "restart": ("step", "problem", "steps"),
}
_OPERATIONS = {"turn": "invoke_agent", "agent": "invoke_agent", "chat": "chat", "tool": "execute_tool"}


def provider_name(setup: Any) -> str:
    """Return the provider of a model setup, with its name in the conventions."""
    name = str(getattr(setup, "provider", "") or "")
    return _PROVIDERS.get(name, name)


def model_name(chat: Activity) -> str:
    """Return the model of a chat. Return the provider if it has only one model, such as ``offline``."""
    setup = chat.attributes.get("setup")
    return str(getattr(setup, "model", "") or getattr(setup, "provider", "") or chat.name)


def span_kind(activity: Activity) -> SpanKind:
    """Return ``CLIENT`` for a model request and ``INTERNAL`` for every other activity."""
    return SpanKind.CLIENT if activity.kind == "chat" else SpanKind.INTERNAL


def _display_name(activity: Activity, content: Content) -> str:
    """Return the name of an activity. Return "unknown" for a tool name that a model invented, except at ``full``."""
    return activity.name if content.full or activity.attributes.get("known", True) else "unknown"


def span_name(activity: Activity, content: Content) -> str:
    """Return the name of the span, such as ``chat MODEL``, ``execute_tool TOOL`` or ``command PROGRAM``."""
    name = _display_name(activity, content)
    if activity.kind == "chat":
        name = model_name(activity)
    return plain(content.redact(f"{_OPERATIONS.get(activity.kind, activity.kind)} {name}"))


def start_attributes(activity: Activity, content: Content) -> dict[str, Any]:
    """Return the attributes that are available when ``activity`` starts."""
    attributes = _turn_attributes(activity.scope) if activity.kind == "turn" else _common_attributes(activity.scope)
    if activity.step:
        attributes["flink_skills.step"] = plain(activity.step, 512)
    if activity.kind in _OPERATIONS:
        attributes["gen_ai.operation.name"] = _OPERATIONS[activity.kind]
    if activity.kind in ("turn", "agent", "chat"):
        scope = activity.scope
        attributes["gen_ai.conversation.id"] = content.text(scope.key) if content.full else scope.key_hash
    call_id = activity.attributes.get("call_id")
    if activity.kind in ("turn", "agent"):
        attributes["gen_ai.agent.name"] = attributes["gen_ai.agent.id"] = plain(activity.name)
    elif activity.kind == "chat":
        attributes.update(_request_attributes(activity, content))
    elif activity.kind == "tool":
        attributes["gen_ai.tool.name"] = plain(_display_name(activity, content))
        attributes["gen_ai.tool.type"] = "function"
        attributes["gen_ai.tool.call.id"] = call_id
        attributes["flink_skills.model"] = activity.attributes.get("model")
        attributes.update(content.arguments(activity.attributes.get("arguments", "")))
    elif activity.kind == "command":
        attributes["process.executable.name"] = plain(activity.name)
        attributes["flink_skills.call_id"] = call_id
        attributes["flink_skills.skill.name"] = activity.attributes.get("skill")
        attributes["flink_skills.command.isolation"] = activity.attributes.get("isolation")
        attributes["flink_skills.command.interactive"] = bool(activity.attributes.get("interactive"))
        attributes.update(content.command(activity.attributes.get("command", "")))
    elif activity.kind in ("stage", "collect"):
        attributes["flink_skills.call_id"] = call_id
        attributes["flink_skills.skill.name"] = activity.attributes.get("skill")
    elif call_id:
        attributes["flink_skills.call_id"] = call_id
    return _clean(attributes, content)


def _common_attributes(scope: TurnScope) -> dict[str, Any]:
    """Return the attributes of every span of a turn."""
    return {"flink_skills.agent": scope.agent, "flink_skills.turn.attempt": scope.attempt}


def _turn_attributes(scope: TurnScope) -> dict[str, Any]:
    return {
        **_common_attributes(scope),
        "flink_skills.turn.id": scope.turn_id,
        "flink_skills.turn.number": scope.turn,
        "flink_skills.turn.resumed_steps": scope.resumed,
        "flink_skills.key.hash": scope.key_hash,
        "flink_skills.event.timestamp": scope.timestamp,
    }


def _request_attributes(activity: Activity, content: Content) -> dict[str, Any]:
    request, setup = activity.attributes["request"], activity.attributes.get("setup")
    attributes: dict[str, Any] = {
        "gen_ai.provider.name": provider_name(setup),
        "gen_ai.request.model": model_name(activity),
        "gen_ai.output.type": "json" if request.output_schema is not None else "text",
        "flink_skills.model": plain(activity.name),
        "flink_skills.fallback_of": activity.attributes.get("fallback_of"),
    }
    for name, convert in _REQUEST_SETTINGS.items():
        value = request.settings.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            attributes[f"gen_ai.request.{name}"] = convert(value)
    stops = request.settings.get("stop_sequences")
    if content.full and isinstance(stops, (list, tuple)):
        attributes["gen_ai.request.stop_sequences"] = [content.text(str(stop)) for stop in stops]
    address = urlsplit(getattr(setup, "base_url", None) or "")
    if address.hostname:
        attributes["server.address"] = address.hostname
        attributes["server.port"] = address.port or (443 if address.scheme == "https" else 80)
    return {**attributes, **content.request(request)}


def end_attributes(activity: Activity, content: Content, digests: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes that are available when ``activity`` has ended.

    Args:
        activity: The activity.
        content: Builder of the attributes with content.
        digests: Digests of skills by name.
    """
    details = activity.attributes
    attributes: dict[str, Any] = {}
    if isinstance(details.get("cost"), (int, float)):
        attributes["flink_skills.cost"] = float(details["cost"])
    if details.get("skills"):
        names = list(details["skills"])
        attributes["flink_skills.skill.names"] = names
        attributes["flink_skills.skill.digests"] = [digests.get(name, "") for name in names]
    if activity.kind == "turn" and "steps" in details:
        attributes.update(_usage_attributes(details.__getitem__))
        for name in ("requests", "steps", "replayed", "outputs"):
            attributes[f"flink_skills.turn.{name}"] = details[name]
    elif activity.kind == "chat" and "response" in details:
        response = details["response"]
        attributes.update(_usage_attributes(partial(getattr, response.usage)))
        attributes["gen_ai.response.finish_reasons"] = [finish_reason(response)]
        attributes.update(content.response(response))
    elif activity.kind == "tool" and "content" in details:
        attributes["flink_skills.tool.is_error"] = bool(details.get("is_error"))
        attributes["flink_skills.tool.times"] = details.get("times")
        if "requested_arguments" in details:
            # A hook or an approval can change the arguments after the start.
            attributes.update(content.arguments(details.get("arguments", "")))
            attributes.update(content.requested_arguments(details["requested_arguments"]))
        attributes.update(content.result(details["content"]))
    elif activity.kind in ("stage", "collect"):
        for name in ("files", "bytes"):
            attributes[f"flink_skills.{activity.kind}.{name}"] = details.get(name)
    elif activity.kind == "command":
        if details.get("skill") in digests:
            attributes["flink_skills.skill.digest"] = digests[details["skill"]]
        if details.get("result") is not None:
            attributes.update(_result_attributes(details["result"], content))
    return _clean(attributes, content)


def _usage_attributes(tokens: Callable[[str], Any]) -> dict[str, int]:
    """Return the attributes of a usage, with those of its details that are not 0.

    Args:
        tokens: Returns a count of the usage by its name.
    """
    attributes = {f"gen_ai.usage.{name}": tokens(name) for name in ("input_tokens", "output_tokens")}
    attributes.update({attribute: tokens(name) for name, attribute in _USAGE_DETAILS.items() if tokens(name)})
    return attributes


def _result_attributes(result: Any, content: Content) -> dict[str, Any]:
    attributes = {
        "process.exit.code": result.exit_code,
        "flink_skills.command.signal": result.signal,
        "flink_skills.command.limit": result.limit,
        "flink_skills.command.timed_out": bool(result.timed_out),
    }
    return {**attributes, **content.output(result.stdout, result.stderr)}


def span_event(event: PointEvent, content: Content) -> tuple[str, dict[str, Any]]:
    """Return the name and attributes of the span event for a point event."""
    details = event.attributes
    names = _EVENT_DETAILS.get(event.kind, ("code", "severity", "skill"))
    attributes: dict[str, Any] = {f"flink_skills.{event.kind}.{name}": details.get(name) for name in names}
    if event.kind == "skill":
        attributes["flink_skills.skill.name"] = details.get("skill")
        if content.metadata:
            attributes["flink_skills.skill.path"] = details.get("path")
    elif event.kind in ("retry", "fallback") and content.full:
        attributes["error.message"] = content.text(str(details.get("error", "")))
    return f"flink_skills.{event.kind}", _clean(attributes, content)


def _clean(attributes: Mapping[str, Any], content: Content) -> dict[str, Any]:
    return {
        name: _clean_value(name, value, content)
        for name, value in attributes.items()
        if value is not None and value != ""
    }


def _clean_value(name: str, value: Any, content: Content) -> Any:
    if isinstance(value, str):
        # Redact names too: the origin of a skill or the name of a step or tool can contain a secret.
        return value if name.startswith(_CLEAN_PREFIXES) else plain(content.redact(value), _MAX_LENGTH)
    return [plain(content.redact(str(item))) for item in value] if isinstance(value, list) else value
