"""Creates the models of the wires from their setups. The registry loads this module when a model needs it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlsplit

from flink_skills.endpoint import check_endpoint
from flink_skills.errors import ConfigError
from flink_skills.models.base import ChatModel
from flink_skills.models.circuit import Circuits
from flink_skills.models.media import accepted_kinds
from flink_skills.models.messages import ModelRequest
from flink_skills.models.registry import create_model, has_wire
from flink_skills.models.setup import NO_KEY, ModelSetup, api_key, keys_not_needed
from flink_skills.models.wires.anthropic_messages import AnthropicMessages
from flink_skills.models.wires.chat_completions import ChatCompletions
from flink_skills.models.wires.connection import Connection
from flink_skills.models.wires.http_model import HttpModel
from flink_skills.models.wires.responses import Responses
from flink_skills.models.wires.wire import Wire
from flink_skills.models.wrapped import WrappedModel
from flink_skills.options import SkillConfig

_ANTHROPIC_URL = "https://api.anthropic.com"
_ANTHROPIC_VERSION = "2023-06-01"
_OPENAI_URL = "https://api.openai.com/v1"
_OLLAMA_URL = "http://localhost:11434/v1"
_EXAMPLE = "http://localhost:8000/v1"
# Hosts of OpenAI and Azure, which know prompt_cache_key.
_OWN_HOST = re.compile(r"(?:^|\.)api\.openai\.com$|\.(?:openai|cognitiveservices|services\.ai)\.azure\.com$")
# Connections are opened as turns are in flight. This is the most that a worker opens to one model.
_MAX_CONNECTIONS = 4096


def anthropic(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of Anthropic. The base URL is without ``/v1``, as for Anthropic's own client."""
    bases = [url.rstrip("/").removesuffix("/v1") for url in _bases(setup, _ANTHROPIC_URL, "ANTHROPIC_BASE_URL")]
    headers = {"x-api-key": api_key(setup, "ANTHROPIC_API_KEY"), "anthropic-version": _ANTHROPIC_VERSION}
    wire = AnthropicMessages(setup.label, setup.model)
    return _model(setup, config, wire, bases, headers, usual_key="ANTHROPIC_API_KEY")


def openai(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of OpenAI, asked by chat completions."""
    return _openai(setup, config, ChatCompletions(setup.label, setup.model, own=True))


def openai_responses(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of OpenAI, asked by responses."""
    return _openai(setup, config, Responses(setup.label, setup.model))


def _openai(setup: ModelSetup, config: SkillConfig, wire: Wire) -> ChatModel:
    bases = _bases(setup, _OPENAI_URL, "OPENAI_BASE_URL")
    # A server of the user may need no key.
    key = api_key(setup, "OPENAI_API_KEY", needed=setup.base_url is None)
    headers = _bearer(key)
    for header, variable in (("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID")):
        if value := os.environ.get(variable):
            headers[header] = value
    return _model(setup, config, wire, bases, headers, usual_key="OPENAI_API_KEY")


def openai_compatible(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of a server that speaks chat completions, such as vLLM, llama.cpp or Ollama.

    The server gets the key that the setup names, never the one for OpenAI.
    """
    bases = setup.base_urls or [setup.base_url or _OLLAMA_URL]
    wire = ChatCompletions(setup.label, setup.model)
    # Such servers turn a schema into a grammar for the whole output, which leaves no room for a call.
    return _model(setup, config, wire, bases, _bearer(api_key(setup, None)), schema_with_tools=False)


def azure(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of Azure OpenAI, asked by chat completions. The model is the name of the deployment."""
    endpoints, key, version = _azure(setup)
    deployment = f"/openai/deployments/{quote(setup.model, safe='')}" if version else ""
    wire = ChatCompletions(setup.label, setup.model, own=True, path=f"{deployment}/chat/completions{version}")
    return _model(setup, config, wire, endpoints, {"api-key": key}, usual_key="AZURE_OPENAI_API_KEY")


def azure_responses(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of Azure OpenAI, asked by responses. The model is the name of the deployment."""
    endpoints, key, version = _azure(setup)
    path = f"/openai/responses{version}" if version else "/responses"
    wire = Responses(setup.label, setup.model, path=path)
    return _model(setup, config, wire, endpoints, {"api-key": key}, usual_key="AZURE_OPENAI_API_KEY")


def _azure(setup: ModelSetup) -> tuple[Sequence[str], str, str]:
    """Return the endpoints of the resource, its key, and a query with the version of its API if it needs one."""
    endpoints = _bases(setup, "", "AZURE_OPENAI_ENDPOINT")
    if not endpoints[0]:
        raise ConfigError(
            f"model {setup.label} needs the address of its resource: set base_url, or AZURE_OPENAI_ENDPOINT in the "
            "environment of the TaskManagers, such as https://NAME.openai.azure.com"
        )
    key = api_key(setup, "AZURE_OPENAI_API_KEY")
    without_version = {urlsplit(endpoint).path.rstrip("/").endswith("/v1") for endpoint in endpoints}
    if len(without_version) > 1:
        raise ConfigError(
            f"model {setup.label}: base_urls mixes endpoints with and without /openai/v1: write all of them in one form"
        )
    if without_version == {True}:
        return endpoints, key, ""
    version = os.environ.get("OPENAI_API_VERSION", "").strip()
    if not version:
        raise ConfigError(
            f"model {setup.label} needs OPENAI_API_VERSION in the environment of the TaskManagers, or an endpoint "
            "that ends in /openai/v1, which needs no version"
        )
    return endpoints, key, f"?api-version={quote(version)}"


def _model(
    setup: ModelSetup,
    config: SkillConfig,
    wire: Wire,
    bases: Sequence[str],
    headers: Mapping[str, str],
    *,
    usual_key: str | None = None,
    schema_with_tools: bool = True,
) -> HttpModel:
    wire.has_cache_keys = all(_OWN_HOST.search(urlsplit(base).hostname or "") for base in bases)
    wire.salt = hashlib.blake2b(repr(sorted(headers.items())).encode(), digest_size=32).digest()
    sent = {"Content-Type": "application/json", "User-Agent": "flink-skills", **headers}
    sent.update((str(name), str(value)) for name, value in (setup.extra.get("headers") or {}).items())
    most = int(setup.extra.get("max_connections", _MAX_CONNECTIONS))
    circuits = Circuits()
    connections = [Connection(base.rstrip("/") + wire.path, sent, max_connections=most) for base in bases]
    return HttpModel(
        wire,
        connections,
        circuits=[circuits.of(setup, base) for base in bases],
        settings=setup.settings,
        accepts=accepted_kinds(setup),
        key_variable=setup.api_key_env or usual_key or "",
        schema_with_tools=schema_with_tools,
    )


def _bases(setup: ModelSetup, usual: str, variable: str) -> Sequence[str]:
    """Return the base URLs: those of the setup, else that of the environment, else the usual one."""
    if setup.base_url is not None:
        return setup.base_urls or [setup.base_url]
    address = os.environ.get(variable, "").strip()
    if address:
        check_endpoint(address, f"model {setup.label}: {variable}", _EXAMPLE)
    return [address or usual]


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key != NO_KEY else {}


def request_body(setup: ModelSetup, request: ModelRequest, config: SkillConfig, *, stream: bool = False) -> bytes:
    """Return the body that a model of ``setup`` sends for ``request``, to the byte. No network and no key is needed.

    The request of a turn also has an ``affinity``, from which ``prompt_cache_key`` follows.

    Args:
        setup: The model, with its strategy.
        request: The request of a turn.
        config: The options of the job.
        stream: Whether the answer is requested as a stream.

    Raises:
        ConfigError: Another library sends the requests of this provider.

    >>> request_body(ModelSetup.parse("openai:gpt-x"), ModelRequest("", [UserMessage("hi")]), SkillConfig())
    b'{"model":"gpt-x","messages":[{"role":"user","content":"hi"}]}'
    """
    if has_wire(setup):
        with keys_not_needed():
            model = create_model(setup, config)
        if isinstance(model, WrappedModel) and isinstance(model.model, HttpModel):
            return model.model.body(model.sent(request), stream=stream)
    raise ConfigError(
        f"the bytes that model {setup.label} receives are not known: requests of provider {setup.provider!r} are sent "
        "by another library. choose a model of openai, openai-responses, anthropic, azure, ollama or openai-compatible"
    )
