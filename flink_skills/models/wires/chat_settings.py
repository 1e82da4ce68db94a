"""The settings of a chat model as fields of a chat completion."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from flink_skills.models.wires.json_bytes import dump

__all__ = ["ChatSettings", "leave_out_sampling", "reasoning_effort"]

_log = logging.getLogger("flink_skills.model")

_SAME = (
    "temperature",
    "top_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "service_tier",
)
_RENAMED = {"stop_sequences": "stop", "openai_text_verbosity": "verbosity"}
# Settings without a field, and those that ``fields`` maps one by one.
_ELSEWHERE = frozenset({"extra_body", "extra_headers", "max_tokens", "parallel_tool_calls", "thinking", "top_k"})
# Models that reason on each request reject these: https://platform.openai.com/docs/guides/reasoning.
_REASONING_MODEL = re.compile(r"(?:o[1-9]|gpt-5)(?:-(?:mini|nano|pro|codex))?(?:-\d{4}-\d\d-\d\d)?$")
_SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias")


class ChatSettings:
    """Encodes settings, and keeps what it encoded last. ``own`` says that the server is OpenAI's or Azure's."""

    def __init__(self, model: str, *, own: bool) -> None:
        self._model = model
        self._own = own
        self._kept: dict[bool, tuple[Mapping[str, Any], bytes]] = {}

    def encoded(self, settings: Mapping[str, Any], *, with_tools: bool) -> bytes:
        """Return the fields as JSON that continues an object: each with a comma before it."""
        kept = self._kept.get(with_tools)
        if kept is None or kept[0] is not settings:
            fields = dump(self.fields(settings, with_tools=with_tools))
            kept = self._kept[with_tools] = (settings, b"," + fields[1:-1] if len(fields) > 2 else b"")
        return kept[1]

    def fields(self, settings: Mapping[str, Any], *, with_tools: bool) -> dict[str, Any]:
        """Return the fields of a chat completion for settings."""
        found: dict[str, Any] = {}
        for name, value in settings.items():
            if value is None or name in _ELSEWHERE:
                continue
            if name in _SAME:
                found[name] = value
            elif name in _RENAMED:
                found[_RENAMED[name]] = value
            elif name.startswith("openai_"):
                found[name.removeprefix("openai_")] = value
        if (most := settings.get("max_tokens")) is not None:
            found["max_completion_tokens" if self._own else "max_tokens"] = most
        if with_tools and (parallel := settings.get("parallel_tool_calls")) is not None:
            found["parallel_tool_calls"] = parallel
        if not self._own and (top_k := settings.get("top_k")) is not None:
            found["top_k"] = top_k
        effort = reasoning_effort(settings.get("thinking"))
        if effort:
            found.setdefault("reasoning_effort", effort)
        if self._own:
            leave_out_sampling(self._model, found)
        # The user's own fields replace all others.
        found.update(settings.get("extra_body") or {})
        return found


def leave_out_sampling(model: str, found: dict[str, Any]) -> None:
    """Remove the fields of a request that a model of OpenAI rejects because it reasons on each request."""
    if not _REASONING_MODEL.match(model):
        return
    left_out = [name for name in _SAMPLING if found.pop(name, None) is not None]
    if left_out:
        _log.warning("chat model %s reasons and takes no %s: left out", model, ", ".join(left_out))


def reasoning_effort(thinking: Any) -> str:
    """Return the effort for the setting ``thinking``, a word or a boolean. Return an empty string if it is not set."""
    if thinking is None or isinstance(thinking, str):
        return thinking or ""
    return "medium" if thinking else "none"
