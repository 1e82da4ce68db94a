"""Setup of a chat model: plain data, without credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, cast

from flink_skills.endpoint import check_endpoint, redact, user_of
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.other_frameworks import SETUP_WORDS
from flink_skills.resource import Resource
from flink_skills.sources.secrets import Secret
from flink_skills.telemetry.prices import Price

Strategy = Literal["auto", "native", "json"]
OnIncomplete = Literal["fail", "retry", "emit"]

SETTINGS = (
    "cache",
    "cache_key",
    "extra_body",
    "extra_headers",
    "frequency_penalty",
    "logit_bias",
    "max_tokens",
    "parallel_tool_calls",
    "presence_penalty",
    "seed",
    "service_tier",
    "session_header",
    "stop_sequences",
    "temperature",
    "thinking",
    "top_k",
    "top_p",
)
"""Settings that every provider understands or leaves out. Others carry their provider's name first:
``openai_reasoning_effort``."""

_STRATEGIES = ("auto", "native", "json")
_ON_INCOMPLETE = ("fail", "retry", "emit")
_CACHES = ("auto", "5m", "1h", "off")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_PATH = re.compile(r"[{}\0\n]")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# Headers that a client sends itself.
_OWN_HEADER = re.compile(
    r"(?:proxy-)?authorization|(?:x-)?api-key|accept(?:-encoding)?|connection|content-.*|host|te|trailer|"
    r"transfer-encoding|upgrade|user-agent|anthropic-version|openai-(?:organization|project)",
    re.IGNORECASE,
)
_SECRET_HEADER = re.compile(r"authorization|cookie|api[-_]?key|token|secret|password", re.IGNORECASE)


@dataclass(frozen=True)
class ModelSetup(Resource):
    """A chat model as a job declares it. It travels in the job's plan, so it holds no credentials:
    ``api_key_env`` *names* the environment variable in which the workers find the key, and ``api_key_file`` the file.

    ``settings`` go with every request (see :data:`SETTINGS`), ``extra`` is for the provider
    (``headers``: more HTTP headers; ``max_connections``; ``media``: the kinds of media that the model accepts, of
    ``image``, ``pdf`` and ``audio``). ``price`` is what it costs, see
    :meth:`flink_skills.telemetry.prices.Price.parse`; None for what the lists of prices say. ``on_incomplete``
    overrides the option ``skills.model.on-incomplete``.

    >>> ModelSetup.parse("openai-compatible:qwen", base_url="http://localhost:8000/v1").model
    'qwen'
    """

    resource_type: ClassVar[str] = "chat_model_setup"

    provider: str
    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    strategy: Strategy | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    price: Mapping[str, float] | float | None = None
    on_incomplete: OnIncomplete | None = None
    #: Equal servers. A key always meets the same one. The first is also ``base_url``.
    base_urls: Sequence[str] = ()

    def __post_init__(self) -> None:
        urls = self.base_urls
        if self.base_url is None and isinstance(urls, Sequence) and not isinstance(urls, str) and urls:
            object.__setattr__(self, "base_url", urls[0])

    @property
    def label(self) -> str:
        """``provider:model``, for people."""
        return f"{self.provider}:{self.model}" if self.model else self.provider

    @property
    def key_place(self) -> str:
        """Variable or file of the key that the setup names. Models with equal ones share limits."""
        return self.api_key_env or self.api_key_file or ""

    @classmethod
    def parse(cls, text: str, **rest: Any) -> ModelSetup:
        """Read ``provider:model`` (or ``offline``), with the other fields as keyword arguments."""
        provider, _, model = text.strip().partition(":")
        return cls(provider=provider, model=model, **rest)

    def to_json(self) -> dict[str, Any]:
        """The fields that are set, as JSON-like data."""
        data: dict[str, Any] = {"provider": self.provider, "model": self.model}
        for name in ("base_url", "api_key_env", "api_key_file", "strategy", "on_incomplete", "price"):
            if getattr(self, name) is not None:
                data[name] = getattr(self, name)
        if self.base_urls:
            data["base_urls"] = list(self.base_urls)
        for name in ("settings", "extra"):
            if getattr(self, name):
                data[name] = dict(getattr(self, name))
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelSetup:
        """The inverse of :meth:`to_json`. Raises :class:`UnknownNameError` for an unknown field."""
        known = {f.name for f in fields(cls)}
        for name in data:
            if name not in known:
                raise UnknownNameError("field", str(name), known, place="a model setup")
        if "provider" not in data:
            raise ConfigError("a model setup needs 'provider', such as {'provider': 'offline'}")
        return cls(**cast("dict[str, Any]", dict(data)))


def check_shape(setup: ModelSetup, *, place: str = "") -> None:
    """Check the values of ``setup``. Raises :class:`ConfigError` or :class:`UnknownNameError`."""
    where = f"{place}: " if place else ""
    if not setup.provider:
        raise ConfigError(f"{where}a model needs a provider, such as 'offline' or 'openai:NAME'")
    if setup.strategy is not None and setup.strategy not in _STRATEGIES:
        raise UnknownNameError("strategy", str(setup.strategy), _STRATEGIES, place=place)
    if setup.on_incomplete is not None and setup.on_incomplete not in _ON_INCOMPLETE:
        raise UnknownNameError("on_incomplete", str(setup.on_incomplete), _ON_INCOMPLETE, place=place)
    if setup.api_key_env is not None and not (
        isinstance(setup.api_key_env, str) and _ENV_NAME.fullmatch(setup.api_key_env)
    ):
        # The value is not shown, because it can be the key itself.
        raise ConfigError(
            f"{where}api_key_env is not the name of an environment variable: "
            "write the name, such as OPENAI_API_KEY, never the key"
        )
    _check_key_file(setup, where)
    if setup.price is not None:
        try:
            Price.parse(setup.price)
        except ConfigError as error:
            raise ConfigError(f"{where}{error}") from error
    if setup.base_url is not None:
        _check_base_url(setup.base_url, "base_url", where)
    _check_base_urls(setup, where)
    cache = setup.settings.get("cache", "auto")
    if not isinstance(cache, bool) and cache not in _CACHES:
        raise UnknownNameError("cache", str(cache), _CACHES, place=place or f"model {setup.label}")
    for name in setup.settings:
        if setup.provider == "anthropic" and name.startswith("anthropic_cache"):
            raise ConfigError(f"{where}{name} is not a setting of model {setup.label}: write cache=auto, 1h or off")
        # A name such as openai_reasoning_effort is its provider's business.
        if not is_setting(name, setup.provider):
            hint = place or f"model {setup.label}"
            raise UnknownNameError("model setting", name, SETTINGS, place=hint, advice=SETUP_WORDS.get(name, ""))
    _check_cache_key(setup, where)
    for headers in (setup.settings.get("extra_headers"), setup.extra.get("headers")):
        for name in headers or ():
            if _SECRET_HEADER.search(str(name)):
                raise ConfigError(
                    f"{where}header {name!r} looks like a credential, and a plan holds none: "
                    "set the key in the workers' environment and name the variable in api_key_env"
                )


def is_setting(name: str, provider: str) -> bool:
    """Return whether ``name`` is one of :data:`SETTINGS`, or has the name of a provider first."""
    if name in SETTINGS:
        return True
    prefixes = {provider.replace("-", "_"), provider.partition("-")[0], "openai", "anthropic", "ollama"}
    return any(name.startswith(prefix + "_") for prefix in prefixes)


def _check_key_file(setup: ModelSetup, where: str) -> None:
    path = setup.api_key_file
    if path is None:
        return
    if not isinstance(path, str) or not path.startswith("/") or _NOT_IN_PATH.search(path):
        # The value is not shown, because it can be the key itself.
        raise ConfigError(
            f"{where}api_key_file is not an absolute path: write the path of the file with the key, such as "
            "/run/secrets/model-key, never the key"
        )
    if setup.api_key_env is not None:
        raise ConfigError(f"{where}api_key_env and api_key_file are both set: omit one of them")


def _check_base_urls(setup: ModelSetup, where: str) -> None:
    urls = setup.base_urls
    if isinstance(urls, str) or not isinstance(urls, Sequence):
        raise ConfigError(f"{where}base_urls is of type {type(urls).__name__}: write a list of addresses")
    for number, url in enumerate(urls):
        _check_base_url(url, f"base_urls[{number}]", where)
        if url in urls[:number]:
            raise ConfigError(f"{where}base_urls contains {redact(url)} twice: remove one")
    if urls and setup.base_url != urls[0]:
        raise ConfigError(
            f"{where}base_url and base_urls are both set: add the address to base_urls, and omit base_url"
        )


def _check_cache_key(setup: ModelSetup, where: str) -> None:
    wanted, header = setup.settings.get("cache_key", "auto"), setup.settings.get("session_header")
    if not isinstance(wanted, bool) and wanted != "auto":
        raise ConfigError(f"{where}cache_key is {wanted!r}: write auto, true or false")
    if header is None:
        return
    if not isinstance(header, str) or not _HEADER.fullmatch(header):
        raise ConfigError(f"{where}session_header is {header!r}: write the name of a header, such as X-Session-ID")
    if _OWN_HEADER.fullmatch(header):
        raise ConfigError(
            f"{where}session_header is {header!r}, which each request contains already: write another name, such as "
            "X-Session-ID"
        )


def _check_base_url(url: str, name: str, where: str) -> None:
    parts = check_endpoint(url, f"{where}{name}", "http://localhost:8000/v1")
    if user_of(url) or parts.query or parts.fragment:
        raise ConfigError(
            f"{where}{name} holds a user, a password or a query ({redact(url)}): a plan holds no "
            "credentials; name an environment variable in api_key_env instead"
        )


NO_KEY = "none"
"""The value for a model without a key."""

_needed: ContextVar[bool] = ContextVar("keys_needed", default=True)


@contextmanager
def keys_not_needed() -> Iterator[None]:
    """Accept missing keys meanwhile: models are created to show their requests, which contain no key."""
    token = _needed.set(False)
    try:
        yield
    finally:
        _needed.reset(token)


class ApiKey:
    """Key of a model. A file is read again when it changes.

    ``place`` is its variable or file, for messages. None: it is not known. Empty: requests contain no key.
    """

    def __init__(self, place: str | None = "", value: str | Secret = NO_KEY) -> None:
        self.place = place
        self._value = value

    @property
    def value(self) -> str:
        """The present key, or :data:`NO_KEY`."""
        return self._value.value.strip() if isinstance(self._value, Secret) else self._value

    def is_renewed(self, status: int | None, sent: str) -> bool:
        """Return True if a provider rejected the key ``sent`` with ``status``, and the file now has another one."""
        return status == 401 and isinstance(self._value, Secret) and self._value.reread().strip() != sent


def api_key(setup: ModelSetup, usual: str | None, *, needed: bool = True) -> ApiKey:
    """Return the API key of a model.

    Args:
        setup: The setup, which may name the variable or the file of the key.
        usual: The variable of the provider. Without one, a key is not needed.
        needed: Whether the usual variable must be set.

    Raises:
        ConfigError: The key is missing.
    """
    place = setup.key_place or usual or ""
    if not place or not _needed.get():
        return ApiKey(place)
    if setup.api_key_file is not None:
        place = f"the file {setup.api_key_file} (api_key_file)"
        try:
            secret = Secret(f"${{file:{setup.api_key_file}}}")
        except ConfigError as error:
            raise ConfigError(
                f"model {setup.label} needs an API key, and api_key_file cannot be read: {error}"
            ) from None
        if not secret.value.strip():
            raise ConfigError(f"model {setup.label} needs an API key, and {place} is empty: write the key into it")
        return ApiKey(place, secret)
    key = os.environ.get(place, "").strip()
    if not key and not needed and setup.api_key_env is None:
        return ApiKey(place)
    if not key:
        raise ConfigError(
            f"model {setup.label} needs an API key, and the environment variable {place} is not set where "
            "the turns run (on a cluster: in the environment of the TaskManagers): set it, or name another "
            "variable in api_key_env"
        )
    return ApiKey(place, key)
