"""Suggestions for names of chat models and of their classes that name no provider."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flink_skills.errors import near_misses

__all__ = ["class_advice", "model_advice"]

# The beginnings of the names of models, by provider.
_MODELS = (
    ("openai", re.compile(r"gpt-|gpt\d|chatgpt|o[1-9](?:-|$)|text-davinci|codex", re.IGNORECASE)),
    ("anthropic", re.compile(r"claude", re.IGNORECASE)),
    ("ollama", re.compile(r"llama|mistral|mixtral|qwen|gemma|deepseek|phi-?\d|codellama|granite", re.IGNORECASE)),
)


def model_advice(text: str, providers: Sequence[str]) -> str:
    """Return what to write for ``text``, the name of a chat model whose provider is not one of ``providers``.

    It is empty if near names of providers are the better advice.

    >>> model_advice("gpt-5", ["offline", "openai"])
    "did you mean 'openai:gpt-5'?"
    """
    provider, slash, name = text.partition("/")
    if slash and provider in providers:
        return f"did you mean '{provider}:{name}'?"
    for provider, pattern in _MODELS:
        if pattern.match(text) and provider in providers:
            return f"did you mean '{provider}:{text}'?"
    if ":" in text or near_misses(text, providers):
        return ""
    return f"write its provider first, such as 'openai:{text}'"


def class_advice(clazz: str, kind: str, providers: Sequence[str]) -> str:
    """Return what to write for ``clazz``, which is not a class of the ``kind`` ``"setup"`` or ``"connection"``.

    >>> class_advice("offline", "setup", ["offline", "openai"])
    "did you mean 'offline.setup'?"
    """
    name, _, last = clazz.rpartition(".")
    if last in ("setup", "connection") and last != kind and name in providers:
        return f"the class is a {last}: return it from a method with @chat_model_{last}, or write '{name}.{kind}'"
    for provider, pattern in _MODELS:
        if kind == "setup" and pattern.match(clazz) and provider in providers and clazz not in providers:
            return f"did you mean '{provider}:{clazz}'?"
    # A class of another framework has the name of its provider in it.
    words = re.sub(r"[^a-z]+", "-", clazz.lower())
    near = [name for name in sorted(providers, key=len, reverse=True) if name in words] or near_misses(
        clazz.partition(".")[0], providers
    )
    if near:
        return f"did you mean '{near[0]}.{kind}'?"
    names = ", ".join(f"'{name}.{kind}'" for name in providers)
    return f"write one of {names}" + (", or 'provider:model'" if kind == "setup" else "")
