"""Registry of the providers of chat models, and creation of a model from its setup.

A provider is a name and a factory that is imported when it is first needed. Packages add their own by
the entry point group ``flink_skills.chat_models``::

    [project.entry-points."flink_skills.chat_models"]
    my-provider = "my_package.models:create"      # create(setup, config) -> ChatModel
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from flink_skills.errors import ConfigError, UnknownNameError, near_misses
from flink_skills.hints import none_is_default
from flink_skills.models.base import ChatModel
from flink_skills.models.media import accepted_kinds
from flink_skills.models.setup import ModelSetup, check_shape
from flink_skills.options import SkillConfig, SkillOptions

__all__ = [
    "ENTRY_POINT_GROUP",
    "ModelFactory",
    "ModelSetup",
    "Provider",
    "check_setup",
    "class_advice",
    "create_model",
    "has_listed_price",
    "has_wire",
    "model_advice",
    "provider_names",
    "register_provider",
    "unregister_provider",
]

ENTRY_POINT_GROUP = "flink_skills.chat_models"

ModelFactory = Callable[[ModelSetup, SkillConfig], ChatModel]


@none_is_default
@dataclass(frozen=True)
class Provider:
    """One provider of chat models.

    ``factory`` is ``module:function`` (imported when a model is made) or the function itself.
    ``install`` is what to do when the import fails. ``strategies`` is false for a model that brings its
    own way of acting and is not to be wrapped.
    """

    name: str
    factory: str | ModelFactory
    install: str = ""
    needs_model: bool = True
    needs_base_url: bool = False
    strategies: bool = True


_INSTALL = "install flink-skills[models]"
_INSTALL_OTHERS = "install flink-skills[providers]"
_CLIENT = "flink_skills.integrations.pydantic_ai:create"
_WIRES = "flink_skills.models.wires.create"

_OWN = {
    provider.name: provider
    for provider in (
        Provider("offline", "flink_skills.models.offline:create", needs_model=False, strategies=False),
        Provider("openai", f"{_WIRES}:openai", _INSTALL),
        Provider("openai-compatible", f"{_WIRES}:openai_compatible", _INSTALL, needs_base_url=True),
        Provider("openai-responses", f"{_WIRES}:openai_responses", _INSTALL),
        Provider("azure", f"{_WIRES}:azure", _INSTALL),
        Provider("azure-responses", f"{_WIRES}:azure_responses", _INSTALL),
        Provider("anthropic", f"{_WIRES}:anthropic", _INSTALL),
        Provider("ollama", f"{_WIRES}:openai_compatible", _INSTALL),
    )
}
_registered: dict[str, Provider] = {}


def register_provider(provider: Provider, *, replace: bool = False) -> None:
    """Add a provider of models. Raises :class:`ConfigError` when the name is taken, unless ``replace``."""
    if not replace and provider.name in provider_names():
        raise ConfigError(f"model provider {provider.name!r} exists already: choose another name or pass replace=True")
    _registered[provider.name] = provider


def unregister_provider(name: str) -> None:
    """Remove the provider that was registered as ``name``, if any. One of this package that it replaced is back."""
    _registered.pop(name, None)


def provider_names() -> list[str]:
    """Names of the providers that are registered here, sorted. More are known to pydantic-ai."""
    return sorted({*_OWN, *_registered, *_entry_points()})


def check_setup(setup: ModelSetup, *, place: str = "") -> None:
    """Check what can be known of ``setup`` without a network and without any API key.

    Raises :class:`UnknownNameError` (provider, setting) or :class:`ConfigError`. ``place`` says in the
    message where the setup comes from, such as ``model 'm' of agent Triage``. A provider that only
    pydantic-ai could know is accepted where pydantic-ai is not installed.

    >>> check_setup(ModelSetup.parse("offline"))
    """
    check_shape(setup, place=place)
    accepted_kinds(setup, place=place)
    provider = _find(setup, place)
    where = f"{place}: " if place else ""
    if provider.needs_model and not setup.model:
        raise ConfigError(
            f"{where}model provider {provider.name!r} needs the name of a model, such as '{provider.name}:NAME'"
        )
    if provider.needs_base_url and not setup.base_url:
        raise ConfigError(f"{where}model provider {provider.name!r} needs base_url, such as http://localhost:8000/v1")
    if not has_wire(setup) and provider.name != "offline":
        unsupported = [name for name in ("cache_key", "session_header") if setup.settings.get(name) is not None]
        if unsupported := [*(["base_urls"] if setup.base_urls else []), *unsupported]:
            raise ConfigError(
                f"{where}model provider {provider.name!r} does not know {unsupported[0]}: omit it, or choose a "
                "provider of flink-skills[models], such as openai-compatible"
            )


def create_model(setup: ModelSetup, config: SkillConfig | None = None) -> ChatModel:
    """Make the model of ``setup``. Belongs where the turns run: API keys are read from the environment now.

    The strategy is the setup's, else that of the option ``skills.model.strategy``. Raises
    :class:`ConfigError` (missing library, missing key) or :class:`UnknownNameError`.

    >>> create_model(ModelSetup.parse("offline"), SkillConfig()).name
    'offline'
    """
    config = config or SkillConfig()
    check_setup(setup)
    provider = _find(setup, "")
    create = _load(provider)
    if not provider.strategies:
        return create(setup, config)
    strategy: str = setup.strategy or config.get(SkillOptions.MODEL_STRATEGY)
    if strategy == "json":
        from flink_skills.models.json import JsonActions

        # A setup with the temperature null leaves it to the server.
        return JsonActions(create(replace(setup, settings={"temperature": 0, **setup.settings}), config))
    from flink_skills.models.native import NativeCalls

    return NativeCalls(create(setup, config))


def has_listed_price(setup: ModelSetup) -> bool:
    """Return True if a price list can contain the model: the user neither runs it nor registered its provider."""
    factory = _find(setup, "").factory
    return setup.provider != "ollama" and isinstance(factory, str) and factory.startswith((_CLIENT, _WIRES))


def has_wire(setup: ModelSetup) -> bool:
    """Return whether this package sends the requests of the model itself. Otherwise pydantic-ai or a plug-in does."""
    factory = _find(setup, "").factory
    return isinstance(factory, str) and factory.startswith(_WIRES)


def _entry_points() -> dict[str, EntryPoint]:
    found: Iterable[EntryPoint] = entry_points(group=ENTRY_POINT_GROUP)
    return {point.name: point for point in found}


def _find(setup: ModelSetup, place: str) -> Provider:
    provider = _registered.get(setup.provider) or _OWN.get(setup.provider)
    if provider is not None:
        return provider
    point = _entry_points().get(setup.provider)
    if point is not None:
        return Provider(point.name, point.value, f"fix the package that provides {point.value}")
    known = _known_to_pydantic_ai(setup.provider)
    if known is False:
        names = provider_names()
        text = f"{setup.provider}:{setup.model}" if setup.model else setup.provider
        raise UnknownNameError(
            "model provider", setup.provider, names, place=place, advice=model_advice(text, names), show_all=True
        )
    return Provider(setup.provider, _CLIENT, _INSTALL_OTHERS)


def _known_to_pydantic_ai(provider: str) -> bool | None:
    """Return True if pydantic-ai supports the provider. Return None if pydantic-ai is not installed."""
    try:
        client = importlib.import_module("flink_skills.integrations.pydantic_ai")
    except ImportError:
        return None
    return bool(client.knows_provider(provider))


def _load(provider: Provider) -> ModelFactory:
    if callable(provider.factory):
        return provider.factory
    module, _, attribute = provider.factory.partition(":")
    try:
        return cast(ModelFactory, getattr(importlib.import_module(module), attribute))
    except ImportError as error:
        hint = f": {provider.install}" if provider.install else ""
        raise ConfigError(f"model provider {provider.name!r} cannot be used here ({error}){hint}") from error
    except AttributeError as error:
        raise ConfigError(
            f"model provider {provider.name!r}: {module} has no {attribute!r}: {provider.install}"
        ) from error


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
