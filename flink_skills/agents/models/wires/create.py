"""Creates the models of the wires from their setups. The registry loads this module when a model needs it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from flink_skills.agents.models.base import ChatModel
from flink_skills.agents.models.keys import NO_KEY, api_key
from flink_skills.agents.models.media import accepted_kinds
from flink_skills.agents.models.setup import ModelSetup
from flink_skills.agents.models.wires.anthropic_messages import AnthropicMessages
from flink_skills.agents.models.wires.chat_completions import ChatCompletions
from flink_skills.agents.models.wires.connection import Connection
from flink_skills.agents.models.wires.http_model import HttpModel
from flink_skills.agents.models.wires.responses import Responses
from flink_skills.agents.models.wires.wire import Wire
from flink_skills.endpoint import check_endpoint
from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig

__all__ = ["anthropic", "azure", "azure_responses", "openai", "openai_compatible", "openai_responses"]

_ANTHROPIC_URL = "https://api.anthropic.com"
_ANTHROPIC_VERSION = "2023-06-01"
_OPENAI_URL = "https://api.openai.com/v1"
_OLLAMA_URL = "http://localhost:11434/v1"
_EXAMPLE = "http://localhost:8000/v1"
# Connections are opened as turns are in flight. This is the most that a worker opens to one model.
_MAX_CONNECTIONS = 4096


def anthropic(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of Anthropic. The base URL is without ``/v1``, as for Anthropic's own client."""
    base = _base(setup, _ANTHROPIC_URL, "ANTHROPIC_BASE_URL").rstrip("/").removesuffix("/v1")
    headers = {"x-api-key": api_key(setup, "ANTHROPIC_API_KEY"), "anthropic-version": _ANTHROPIC_VERSION}
    return _model(setup, AnthropicMessages(setup.label, setup.model), base, headers, usual_key="ANTHROPIC_API_KEY")


def openai(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of OpenAI, asked by chat completions."""
    return _openai(setup, ChatCompletions(setup.label, setup.model, own=True))


def openai_responses(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of OpenAI, asked by responses."""
    return _openai(setup, Responses(setup.label, setup.model))


def _openai(setup: ModelSetup, wire: Wire) -> ChatModel:
    base = _base(setup, _OPENAI_URL, "OPENAI_BASE_URL")
    # A server of the user may need no key.
    key = api_key(setup, "OPENAI_API_KEY", needed=setup.base_url is None)
    headers = _bearer(key)
    for header, variable in (("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID")):
        if value := os.environ.get(variable):
            headers[header] = value
    return _model(setup, wire, base, headers, usual_key="OPENAI_API_KEY")


def openai_compatible(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of a server that speaks chat completions, such as vLLM, llama.cpp or Ollama.

    The server gets the key that the setup names, never the one for OpenAI.
    """
    base = setup.base_url or _OLLAMA_URL
    wire = ChatCompletions(setup.label, setup.model)
    # Such servers turn a schema into a grammar for the whole output, which leaves no room for a call.
    return _model(setup, wire, base, _bearer(api_key(setup, None)), schema_with_tools=False)


def azure(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of Azure OpenAI, asked by chat completions. The model is the name of the deployment."""
    endpoint, key, version = _azure(setup)
    deployment = f"/openai/deployments/{quote(setup.model, safe='')}" if version else ""
    wire = ChatCompletions(setup.label, setup.model, own=True, path=f"{deployment}/chat/completions{version}")
    return _model(setup, wire, endpoint, {"api-key": key}, usual_key="AZURE_OPENAI_API_KEY")


def azure_responses(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create a model of Azure OpenAI, asked by responses. The model is the name of the deployment."""
    endpoint, key, version = _azure(setup)
    path = f"/openai/responses{version}" if version else "/responses"
    wire = Responses(setup.label, setup.model, path=path)
    return _model(setup, wire, endpoint, {"api-key": key}, usual_key="AZURE_OPENAI_API_KEY")


def _azure(setup: ModelSetup) -> tuple[str, str, str]:
    """Return the endpoint of the resource, its key, and a query with the version of its API if it needs one."""
    endpoint = _base(setup, "", "AZURE_OPENAI_ENDPOINT")
    if not endpoint:
        raise ConfigError(
            f"model {setup.label} needs the address of its resource: set base_url, or AZURE_OPENAI_ENDPOINT in the "
            "environment of the TaskManagers, such as https://NAME.openai.azure.com"
        )
    key = api_key(setup, "AZURE_OPENAI_API_KEY")
    if urlsplit(endpoint).path.rstrip("/").endswith("/v1"):
        return endpoint, key, ""
    version = os.environ.get("OPENAI_API_VERSION", "").strip()
    if not version:
        raise ConfigError(
            f"model {setup.label} needs OPENAI_API_VERSION in the environment of the TaskManagers, or an endpoint "
            "that ends in /openai/v1, which needs no version"
        )
    return endpoint, key, f"?api-version={quote(version)}"


def _model(
    setup: ModelSetup,
    wire: Wire,
    base: str,
    headers: Mapping[str, str],
    *,
    usual_key: str | None = None,
    schema_with_tools: bool = True,
) -> HttpModel:
    more = setup.extra.get("headers") or {}
    connection = Connection(
        base.rstrip("/") + wire.path,
        {
            "Content-Type": "application/json",
            "User-Agent": "flink-skills",
            **headers,
            **{str(name): str(value) for name, value in more.items()},
        },
        max_connections=int(setup.extra.get("max_connections", _MAX_CONNECTIONS)),
    )
    return HttpModel(
        wire,
        connection,
        settings=setup.settings,
        accepts=accepted_kinds(setup),
        key_variable=setup.api_key_env or usual_key,
        schema_with_tools=schema_with_tools,
    )


def _base(setup: ModelSetup, usual: str, variable: str) -> str:
    """Return the base URL: that of the setup, else that of the environment, else the usual one."""
    if setup.base_url is not None:
        return setup.base_url
    address = os.environ.get(variable, "").strip()
    if address:
        check_endpoint(address, f"model {setup.label}: {variable}", _EXAMPLE)
    return address or usual


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key != NO_KEY else {}
