"""Chat models over the network, through pydantic-ai.

The only module that imports pydantic-ai and the providers' clients; the registry loads it when a model
needs it. One model holds one HTTP client with its connections, for all turns of a worker."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import os
import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from flink_skills.endpoint import check_endpoint
from flink_skills.errors import ConfigError, ModelError
from flink_skills.integrations.pydantic_ai_mapping import from_response, parameters, to_messages
from flink_skills.models.base import ChatModel
from flink_skills.models.client_errors import explain
from flink_skills.models.error_bodies import failure
from flink_skills.models.media import accepted_kinds
from flink_skills.models.messages import ModelRequest, ModelResponse
from flink_skills.models.setup import ModelSetup, api_key
from flink_skills.options import SkillConfig
from flink_skills.telemetry import Delta, OnDelta, TextDelta, ToolCallDelta

# Status codes of servers that do not support streams, or an option of streams.
_REFUSALS = frozenset({400, 404, 405, 415, 422, 501})
_KEY_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*_(?:KEY|TOKEN)(?:_[A-Z]+)?")
# Id, name and number of each tool call, by the index of its part.
_Calls = dict[int, tuple[str, str, int]]


class _DeltaForwarder:
    """Listener that forwards deltas, and records whether there were any."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self.has_forwarded = False

    def __call__(self, delta: Delta) -> None:
        self.has_forwarded = True
        self._on_delta(delta)


async def read_stream(model: Model[Any], on_delta: OnDelta, **exchange: Any) -> theirs.ModelResponse:
    """Request an answer, forward its deltas, and return the whole answer."""
    calls: _Calls = {}
    async with model_request_stream(model, **exchange) as stream:
        async for event in stream:
            if isinstance(event, theirs.PartStartEvent):
                _start(event, calls, on_delta)
            elif isinstance(event, theirs.PartDeltaEvent):
                _continue(event, calls, on_delta)
        return stream.get()


def is_about_streaming(error: Exception) -> bool:
    """Return True if a request may have failed because it requested a stream.

    The server rejected it, the client does not support streams, or the response was not a stream.
    """
    if isinstance(error, ModelHTTPError):
        return error.status_code in _REFUSALS
    return isinstance(error, (NotImplementedError, UnexpectedModelBehavior))


def _start(event: theirs.PartStartEvent, calls: _Calls, on_delta: OnDelta) -> None:
    part = event.part
    if isinstance(part, theirs.TextPart):
        if part.content:
            on_delta(TextDelta(part.content))
    elif isinstance(part, theirs.ToolCallPart):
        number = calls[event.index][2] if event.index in calls else len(calls)
        calls[event.index] = (part.tool_call_id, part.tool_name, number)
        on_delta(ToolCallDelta(part.tool_call_id, part.tool_name, _written(part.args), number))


def _continue(event: theirs.PartDeltaEvent, calls: _Calls, on_delta: OnDelta) -> None:
    delta = event.delta
    if isinstance(delta, theirs.TextPartDelta):
        if delta.content_delta:
            on_delta(TextDelta(delta.content_delta))
    elif isinstance(delta, theirs.ToolCallPartDelta) and event.index in calls:
        call_id, name, number = calls[event.index]
        if delta.tool_name_delta:
            name += delta.tool_name_delta
            calls[event.index] = (call_id, name, number)
        if written := _written(delta.args_delta):
            on_delta(ToolCallDelta(call_id, name, written, number))


def _written(args: Any) -> str:
    """Return arguments as a fragment of JSON. Some providers return objects."""
    if args is None or isinstance(args, str):
        return args or ""
    return json.dumps(args, ensure_ascii=False) if args else ""


_CACHE = {"auto": True, "off": False}


class PydanticAIModel(ChatModel):
    """A pydantic-ai model as a :class:`ChatModel`.

    ``model`` is theirs, made with ``max_retries=0``: the turn loop tries again. ``place`` is the base URL
    for error messages, without secrets.
    """

    def __init__(
        self,
        name: str,
        model: Model[Any],
        *,
        settings: Mapping[str, Any] | None = None,
        place: str = "",
        key_variable: str | None = None,
        accepts: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self.accepts = accepts
        self._model = model
        self._settings = dict(settings or {})
        self._place = place
        self._key_variable = key_variable
        self._streams = True
        self._closed = False
        self._hook(getattr(getattr(model, "client", None), "_client", None))

    def _hook(self, http: Any) -> None:
        """Observe the responses of the HTTP client below a client library, if it is one of httpx."""
        hooks = getattr(http, "event_hooks", None)
        if isinstance(hooks, Mapping):
            http.event_hooks = {**hooks, "response": [*hooks.get("response", ()), self._responded]}

    async def _responded(self, response: Any) -> None:
        # Models of one provider may share a client.
        if _asking.get() is not self:
            return
        if response.status_code == 200 and "json" in response.headers.get("content-type", ""):
            try:
                body = json.loads(await response.aread())
            except (ValueError, RecursionError):
                return
            if (found := failure(body, response.headers)) is not None:
                raise found

    async def request(self, request: ModelRequest) -> ModelResponse:
        try:
            response = await asyncio.wait_for(model_request(self._model, **self._exchange(request)), request.timeout)
            return from_response(response, self.name)
        except Exception as error:
            raise self._explained(error, request) from error

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        """As :meth:`request`, with the answer while it arrives. A provider that cannot stream is asked for the whole
        answer, and from then on for nothing else."""
        if not self._streams:
            return await super().stream(request, on_delta)
        forwarder = _DeltaForwarder(on_delta)
        try:
            exchange = read_stream(self._model, forwarder, **self._exchange(request))
            return from_response(await asyncio.wait_for(exchange, request.timeout), self.name)
        except Exception as error:
            if forwarder.has_forwarded or not is_about_streaming(error):
                raise self._explained(error, request) from error
            whole = await super().stream(request, on_delta)
            self._streams = False
            return whole

    def _exchange(self, request: ModelRequest) -> dict[str, Any]:
        _asking.set(self)
        settings = {**self._settings, **request.settings}
        if (cache := settings.get("cache")) in _CACHE:
            settings["cache"] = _CACHE[cache]
        if request.timeout is not None:
            # For the phases of the exchange; the deadline of the whole is the caller's.
            settings["timeout"] = request.timeout
        return {
            "messages": to_messages(request, model=self.name, schema_in_text=self._schema_in_text(request)),
            "model_settings": cast(ModelSettings, settings),
            "model_request_parameters": parameters(request, native_schema=self._native_schema(request)),
        }

    def _explained(self, error: Exception, request: ModelRequest) -> ModelError:
        return explain(
            error,
            model=self.name,
            place=self._place,
            timeout=request.timeout,
            key_variable=self._key_variable,
        )

    def _native_schema(self, request: ModelRequest) -> bool:
        if request.output_schema is None:
            return False
        profile = self._model.profile
        if isinstance(profile, Mapping):
            return bool(profile.get("supports_json_schema_output", False))
        return bool(getattr(profile, "supports_json_schema_output", False))

    def _schema_in_text(self, request: ModelRequest) -> bool:
        if request.output_schema is None or request.describes_schema:
            return False
        return not self._native_schema(request)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        client = getattr(self._model, "client", None)
        close = getattr(client, "close", None) or getattr(client, "aclose", None)
        if close is not None:
            outcome = close()
            if inspect.isawaitable(outcome):
                await outcome


# The model whose request this task, or one that it started, makes.
_asking: contextvars.ContextVar[PydanticAIModel | None] = contextvars.ContextVar("flink_skills_asking", default=None)


def knows_provider(provider: str) -> bool:
    """Whether pydantic-ai has a provider of this name."""
    try:
        infer_provider_class(provider)
    except ValueError:
        return False
    except ImportError:
        return True  # known, and its client library is missing: said when the model is made
    return True


def create(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Make the model for the registry. Raises :class:`ConfigError` for a missing key or library."""
    _check_addresses(setup)
    try:
        return _inferred(setup)
    except UserError as error:
        raise ConfigError(f"model {setup.label} cannot be made: {error}") from error
    except ImportError as error:
        raise ConfigError(f"model {setup.label} cannot be made, its client library is missing: {error}") from error


def _check_addresses(setup: ModelSetup) -> None:
    """Check the addresses that the clients read from the environment if the setup has none."""
    if setup.base_url is None:
        prefix = setup.provider.partition("-")[0].upper()
        for name in (f"{prefix}_BASE_URL", f"{prefix}_OPENAI_ENDPOINT"):
            if address := os.environ.get(name):
                check_endpoint(address, f"model {setup.label}: {name}", "http://localhost:8000/v1")


def _inferred(setup: ModelSetup) -> ChatModel:
    """Any other provider of pydantic-ai; it finds its own key, unless the setup names one."""
    arguments: dict[str, Any] = {}
    variables = [setup.api_key_env] if setup.api_key_env is not None else []
    if setup.base_url is not None:
        arguments["base_url"] = setup.base_url
    if setup.api_key_env is not None:
        arguments["api_key"] = api_key(setup, None)

    def provider(name: str) -> Provider[Any]:
        provider_class = infer_provider_class(name)
        variables.extend(_key_variables(provider_class))
        taken = inspect.signature(provider_class.__init__).parameters
        for argument in arguments:
            if argument not in taken:
                what = "api_key_env" if argument == "api_key" else argument
                raise ConfigError(
                    f"model {setup.label}: provider {name!r} takes no {what}: leave it out and use "
                    "the provider's own environment variables"
                )
        return provider_class(**arguments)

    model = infer_model(f"{setup.provider}:{setup.model}", provider_factory=provider)
    client = getattr(model, "client", None)
    if hasattr(client, "max_retries"):
        # The clients generated for Groq, Cohere … try again by themselves otherwise.
        cast(Any, client).max_retries = 0
    return PydanticAIModel(
        setup.label,
        model,
        settings=setup.settings,
        accepts=accepted_kinds(setup),
        place=setup.base_url or str(getattr(model, "base_url", None) or ""),
        key_variable=next((name for name in variables if os.environ.get(name)), None),
    )


def _key_variables(provider: type[Provider[Any]]) -> list[str]:
    """Return the environment variables from which a provider of pydantic-ai reads its key. Its code names them."""
    code = getattr(inspect.unwrap(provider.__init__), "__code__", None)
    constants = getattr(code, "co_consts", ())
    return [name for name in constants if isinstance(name, str) and _KEY_VARIABLE.fullmatch(name)]
