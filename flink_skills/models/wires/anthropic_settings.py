"""The settings of a chat model as fields and headers of Anthropic's messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.models.wires.wire import Schema, SettingsFields

_FIFTH = ("claude-fable-5", "claude-mythos-5", "claude-opus-5", "claude-sonnet-5", "claude-haiku-5-5")
_NEWEST = (*_FIFTH, "claude-opus-4-7", "claude-opus-4-8")
_ADAPTIVE = (*_NEWEST, "claude-opus-4-6", "claude-sonnet-4-6")
_EFFORT = (*_ADAPTIVE, "claude-opus-4-5")
_SCHEMAS = (*_EFFORT, "claude-opus-4-1", "claude-sonnet-4-5", "claude-haiku-4-5")
_MIDDLE = ("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5")
_OLD = (
    "claude-3",
    "claude-4-",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2",
    "claude-opus-4@",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2",
    "claude-sonnet-4@",
)
_ALWAYS = ("claude-fable-5", "claude-mythos-5", "claude-mythos-preview", "claude-opus-5-5")
_BINDING = (
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
)


@dataclass(frozen=True)
class Claude:
    """The settings and features that a model of Anthropic accepts.

    Args:
        max_tokens: The maximum length of an answer, in tokens, if the settings have none.
        schemas: Whether it accepts an output schema.
        sampling: Whether it accepts ``temperature``, ``top_p`` and ``top_k``.
        adaptive: Whether it decides itself how much to think. Others need a budget in tokens.
        effort: The highest effort that it accepts; empty if it does not accept efforts.
        thinks: Whether it thinks by default.
        always_thinks: Whether thinking cannot be disabled.
        between_tools: Whether thinking is disabled by ``between_tools``.
        binds: Whether it accepts a thinking block only after the messages, tools and system text that preceded it.
    """

    max_tokens: int = 16_384
    schemas: bool = False
    sampling: bool = True
    adaptive: bool = False
    effort: str = ""
    thinks: bool = False
    always_thinks: bool = False
    between_tools: bool = False
    binds: bool = False

    @classmethod
    def named(cls, model: str) -> Claude:
        """Return the features of the model of this name.

        >>> Claude.named("claude-sonnet-4-5").schemas, Claude.named("claude-3-5-haiku-latest").max_tokens
        (True, 4096)
        """
        name = model.rpartition("/")[2]
        return cls(
            max_tokens=_max_tokens(name),
            schemas=name.startswith(_SCHEMAS),
            sampling=not name.startswith(_NEWEST),
            adaptive=name.startswith((*_ADAPTIVE, "claude-mythos-preview")),
            effort=_effort(name),
            thinks=name.startswith((*_FIFTH, "claude-mythos-preview")),
            always_thinks=name.startswith(_ALWAYS),
            between_tools=name.startswith("claude-sonnet-5-5"),
            binds=name.startswith(_BINDING),
        )


def _max_tokens(name: str) -> int:
    if name.startswith(_OLD) or name in ("claude-opus-4", "claude-sonnet-4"):
        # Old models reject a request if its input and max_tokens together exceed the context window.
        return 4096
    if name.startswith(_ADAPTIVE):
        return 128_000
    return 64_000 if name.startswith(_MIDDLE) else 16_384


def _effort(name: str) -> str:
    if name.startswith(_NEWEST):
        return "xhigh"
    if name.startswith("claude-opus-4-5"):
        return "high"
    return "max" if name.startswith(_EFFORT) else ""


_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_SAME = ("$ref", "type", "enum", "const", "title", "description", "default", "required")
_NESTED = ("anyOf", "allOf")
_DEFINITIONS = ("$defs", "definitions")
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
# A schema without any of these keywords accepts every value.
_DECIDING = frozenset({"$ref", "type", "enum", "const", "anyOf", "allOf"})


class _OpenError(ValueError):
    """A schema with a part that the API does not enforce."""


def closed_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema as Anthropic enforces it: each object is closed, and other limits are described.

    Return None if an object of the schema is free-form or contains itself: closing it would change its meaning.

    >>> closed_schema({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}})["properties"]
    {'n': {'type': 'integer', 'description': '{minimum: 1}'}}
    >>> closed_schema({"type": "object"}) is None
    True
    """
    try:
        _reject_recursion(schema)
        return _closed(schema)
    except (_OpenError, RecursionError):
        return None


def _closed(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _OpenError
    rest = dict(schema)
    if "oneOf" in rest:
        rest.setdefault("anyOf", rest.pop("oneOf"))
    if "properties" in rest:
        rest.setdefault("type", "object")
    if not _DECIDING & rest.keys():
        raise _OpenError
    found = {name: rest.pop(name) for name in _SAME if name in rest}
    for name in _NESTED:
        if name in rest:
            found[name] = [_closed(variant) for variant in rest.pop(name)]
    for name in _DEFINITIONS:
        if name in rest:
            found[name] = {key: _closed(of) for key, of in rest.pop(name).items()}
    kinds = found.get("type", ())
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        _add_kind(kind, found, rest)
    rest.pop("$schema", None)
    if rest:
        limits = "{" + ", ".join(f"{name}: {value}" for name, value in rest.items()) + "}"
        found["description"] = f"{found['description']}\n\n{limits}" if found.get("description") else limits
    return found


def _add_kind(kind: str, found: dict[str, Any], rest: dict[str, Any]) -> None:
    """Move the keywords of one type from ``rest`` to ``found``."""
    if kind == "object":
        properties = rest.pop("properties", None)
        others = rest.pop("additionalProperties", None)
        if "patternProperties" in rest or others not in (None, False) or (not properties and others is None):
            raise _OpenError
        found["properties"] = {name: _closed(of) for name, of in (properties or {}).items()}
        found["additionalProperties"] = False
    elif kind == "array":
        if "prefixItems" in rest:
            raise _OpenError
        found["items"] = _closed(rest.pop("items", None))
        if rest.get("minItems") in (0, 1):
            found["minItems"] = rest.pop("minItems")
    elif kind not in _SCALARS:
        raise _OpenError
    elif kind == "string" and rest.get("format") in _FORMATS:
        found["format"] = rest.pop("format")


def _reject_recursion(schema: Mapping[str, Any]) -> None:
    """Raise :class:`_OpenError` if a definition refers to itself, directly or through others."""
    targets = {
        f"#/{name}/{key}": _references(of)
        for name in _DEFINITIONS
        if isinstance(schema.get(name), Mapping)
        for key, of in schema[name].items()
    }
    for start, first in targets.items():
        reached: set[str] = set()
        more = set(first)
        while more:
            reached |= more
            more = {to for of in more for to in targets.get(of, ())} - reached
        if start in reached:
            raise _OpenError
    if "#" in _references(schema):
        raise _OpenError


def _references(schema: Any) -> set[str]:
    if isinstance(schema, Mapping):
        own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
        return own.union(*map(_references, schema.values()))
    return set().union(*map(_references, schema)) if isinstance(schema, list) else set()


_log = logging.getLogger("flink_skills.model")

_SAMPLING = ("temperature", "top_p", "top_k")
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 10_000, "high": 16_384, "xhigh": 32_768, "max": 32_768}
_ROOM = 4096
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "max", "max": "max"}
_TIERS = {"auto": "auto", "default": "standard_only"}
# Settings that are not fields of a request. All others with the provider's name are.
_ELSEWHERE = frozenset(
    {
        "anthropic_betas",
        "anthropic_eager_input_streaming",
        "anthropic_effort",
        "anthropic_native_schema",
        "anthropic_task_budget",
        "anthropic_thinking",
    }
)
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_DROP_STALE = {"prefix_mismatch_behavior": "drop_block"}
# Features that the API accepts only together with their name in a header.
_BETAS = {
    "anthropic_context_management": "compact-2026-01-12",
    "anthropic_speed": "fast-mode-2026-02-01",
    "anthropic_task_budget": "task-budgets-2026-03-13",
}


class AnthropicSettings(SettingsFields):
    """Encodes settings for one model."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._claude = Claude.named(model)

    def fields(self, settings: Mapping[str, Any], schema: Schema, with_tools: bool, thinks: bool) -> dict[str, Any]:
        thinking = self._thinking(settings)
        if not thinks and (thinking or {}).get("type") == "enabled":
            thinking = None
        found: dict[str, Any] = {"max_tokens": settings.get("max_tokens") or self._max_tokens(thinking)}
        for name, value in settings.items():
            if name.startswith("anthropic_") and value is not None and name not in _ELSEWHERE:
                found[name.removeprefix("anthropic_")] = value
        if stops := settings.get("stop_sequences"):
            found["stop_sequences"] = stops
        if tier := _TIERS.get(str(settings.get("service_tier"))):
            found.setdefault("service_tier", tier)
        found.update(self._sampling(settings, thinking))
        if thinking is not None:
            found["thinking"] = thinking
        if config := self._output_config(settings, schema):
            found["output_config"] = config
        if with_tools and (parallel := settings.get("parallel_tool_calls")) is not None:
            found["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": not parallel}
        # Fields of extra_body replace all others.
        found.update(settings.get("extra_body") or {})
        return found

    def headers(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers of a request for settings: theirs, and the names of the features that it uses."""
        headers = {str(name): str(value) for name, value in (settings.get("extra_headers") or {}).items()}
        betas = {str(beta) for beta in settings.get("anthropic_betas") or ()}
        for name in [name for name in headers if name.lower() == "anthropic-beta"]:
            betas.update(beta.strip() for beta in headers.pop(name).split(","))
        betas.update(beta for name, beta in _BETAS.items() if settings.get(name) not in (None, "standard"))
        if "block_binding" in (self._thinking(settings) or {}):
            betas.add(_BINDING_BETA)
        if betas:
            headers["anthropic-beta"] = ",".join(sorted(betas))
        return headers

    def thinks(self, settings: Mapping[str, Any]) -> bool:
        """Return whether a request with these settings lets the model think."""
        thinking = self._thinking(settings)
        return self._claude.thinks if thinking is None else thinking.get("type") != "disabled"

    def has_budget(self, settings: Mapping[str, Any]) -> bool:
        """Return whether the model thinks within a budget, so that a tool loop must begin with its thinking."""
        return (self._thinking(settings) or {}).get("type") == "enabled"

    def takes_schema(self, schema: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
        """Return whether the API enforces a schema: the model must be able to, and no object of it is free-form."""
        native = settings.get("anthropic_native_schema")
        return closed_schema(schema) is not None and (self._claude.schemas if native is None else bool(native))

    def _max_tokens(self, thinking: Mapping[str, Any] | None) -> int:
        budget = (thinking or {}).get("budget_tokens")
        return max(self._claude.max_tokens, budget + _ROOM if isinstance(budget, int) else 0)

    def _thinking(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        by_user = (settings.get("extra_body") or {}).get("thinking", settings.get("anthropic_thinking"))
        if by_user:
            return dict(by_user)
        thinking = self._wanted(settings.get("thinking"))
        if self._claude.binds and (thinking or {"type": "adaptive"})["type"] == "adaptive":
            # The tools and the system text of a session change. The API then drops earlier thinking instead of failing.
            return {"type": "adaptive", "block_binding": _DROP_STALE}
        return thinking

    def _wanted(self, thinking: Any) -> dict[str, Any] | None:
        claude = self._claude
        if thinking is None:
            return None
        if thinking in (False, "none"):
            if claude.always_thinks:
                return {"type": "adaptive"} if claude.effort else None
            if claude.between_tools:
                return {"type": "between_tools"}
            return {"type": "disabled"} if claude.thinks else None
        if claude.adaptive:
            return {"type": "adaptive"}
        return {"type": "enabled", "budget_tokens": _BUDGETS.get(thinking, _BUDGETS["medium"])}

    def _output_config(self, settings: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
        config: dict[str, Any] = {}
        if schema is not None:
            config["format"] = {"type": "json_schema", "schema": closed_schema(schema) or schema}
        if effort := settings.get("anthropic_effort") or self._effort(settings.get("thinking")):
            config["effort"] = effort
        if budget := settings.get("anthropic_task_budget"):
            config["task_budget"] = budget
        return config

    def _effort(self, thinking: Any) -> str:
        highest = self._claude.effort
        if not highest or thinking in (None, True):
            return ""
        if thinking in (False, "none"):
            return "low" if self._claude.always_thinks else ""
        if thinking == "xhigh" and highest == "xhigh":
            return "xhigh"
        effort = _EFFORTS.get(thinking, "medium")
        return highest if effort == "max" and highest == "high" else effort

    def _sampling(self, settings: Mapping[str, Any], thinking: Mapping[str, Any] | None) -> dict[str, Any]:
        wanted = {name: settings[name] for name in _SAMPLING if settings.get(name) is not None}
        if not self._claude.sampling:
            left_out = list(wanted)
        elif thinking is not None and thinking.get("type") != "disabled":
            left_out = [name for name in wanted if name != "top_p"]
        else:
            left_out = []
        if left_out:
            _log.warning(
                "chat model %s does not accept %s while it thinks, so requests omit it",
                self._model,
                ", ".join(left_out),
            )
        return {name: value for name, value in wanted.items() if name not in left_out}
