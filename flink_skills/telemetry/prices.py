"""Cost of model requests, from prices that the job declares or the price list of the package genai-prices."""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from flink_skills.errors import ConfigError
from flink_skills.telemetry.activity import Activity, Observer

_log = logging.getLogger("flink_skills.telemetry")
_PER_MILLION = 1_000_000
_KEYS = ("input", "output")
_CACHE_KEYS = ("cache_read", "cache_write")


class TokenCounts(Protocol):
    """Token counts of a request that have prices."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cache_read_tokens(self) -> int: ...
    @property
    def cache_write_tokens(self) -> int: ...


@dataclass(frozen=True)
class Price:
    """Price of a model in USD per million tokens.

    Attributes:
        input: Price of input tokens.
        output: Price of output tokens.
        cache_read: Price of input tokens that the provider reads from its cache.
        cache_write: Price of input tokens that the provider writes to its cache.

    >>> Price.parse({"input": 1.25, "output": 10, "cache_read": 0.125}).cache_read
    0.125
    """

    input: float
    output: float
    cache_read: float
    cache_write: float

    @classmethod
    def parse(cls, value: Any) -> Price:
        """Return the price that a mapping or number declares.

        A number is the price of all tokens, such as 0 for a local model. A mapping has ``input`` and ``output``, and
        optionally ``cache_read`` and ``cache_write``, which default to ``input``.

        Raises:
            ConfigError: The value is not a valid price.
        """
        if not isinstance(value, Mapping):
            value = dict.fromkeys(_KEYS, value)
        if not set(_KEYS) <= set(value) <= {*_KEYS, *_CACHE_KEYS} or not all(map(_is_price, value.values())):
            raise ConfigError(
                f"invalid price {value!r}. Set USD per million tokens, such as {{'input': 1.25, 'output': 10.0}}, or 0 "
                "for a free model. Optional keys for cached tokens: cache_read and cache_write."
            )
        cached = (float(value.get(key, value["input"])) for key in _CACHE_KEYS)
        return cls(float(value["input"]), float(value["output"]), *cached)

    def cost(self, usage: TokenCounts) -> float:
        """Return the cost of ``usage`` in USD."""
        read, write, uncached = _split_input(usage)
        input_cost = uncached * self.input + read * self.cache_read + write * self.cache_write
        return (input_cost + usage.output_tokens * self.output) / _PER_MILLION


def _split_input(usage: TokenCounts) -> tuple[int, int, int]:
    """Return the number of input tokens read from a cache, written to it, and uncached. None is negative."""
    read = min(usage.cache_read_tokens, usage.input_tokens)
    write = min(usage.cache_write_tokens, usage.input_tokens - read)
    return read, write, usage.input_tokens - read - write


def _is_price(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


class PricedModel(Protocol):
    """Attributes of a model setup that determine its price."""

    @property
    def provider(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def base_url(self) -> str | None: ...
    @property
    def price(self) -> Any:
        """Argument of :meth:`Price.parse`. None requests the list price."""


_CostFunction = Callable[[TokenCounts], float]


class CostObserver(Observer):
    """Observer that sets the attribute ``cost`` (USD) at the end of each ``chat`` and turn.

    The cost of a turn is the sum over the requests of the attempt. The attribute is omitted if the price is unknown.
    Place this observer before those that read the attribute.

    Args:
        has_listed_price: Returns True if a price list may contain the model of a setup without a price. Without it no
            price is looked up.
    """

    def __init__(self, has_listed_price: Callable[[Any], bool] | None = None) -> None:
        self._has_listed_price = has_listed_price
        self._costs: dict[tuple[str, str, str | None], Future[_CostFunction | None] | None] = {}

    def started(self, activity: Activity) -> None:
        if activity.kind != "chat":
            return
        setup: PricedModel = activity.attributes["setup"]
        key = (setup.provider, setup.model, setup.base_url)
        if setup.price is None and key not in self._costs:
            is_listed = self._has_listed_price is not None and setup.model and self._has_listed_price(setup)
            self._costs[key] = _look_up_cost(setup) if is_listed else None

    def ended(self, activity: Activity) -> None:
        state = activity.scope.observer_state
        if activity.kind == "chat":
            response = activity.attributes.get("response")
            cost_function = self._cost_function(activity.attributes["setup"]) if response is not None else None
            if response is not None and cost_function is not None:
                cost = cost_function(response.usage)
                activity.attributes["cost"] = cost
                state["cost"] = state.get("cost", 0.0) + cost
        elif activity.kind == "turn" and "cost" in state:
            activity.attributes["cost"] = state["cost"]

    def _cost_function(self, setup: PricedModel) -> _CostFunction | None:
        if setup.price is not None:
            return Price.parse(setup.price).cost
        future = self._costs.get((setup.provider, setup.model, setup.base_url))
        return future.result() if future is not None else None


def _look_up_cost(setup: PricedModel) -> Future[_CostFunction | None]:
    """Look up the list price in a thread, because loading the list would block the event loop for half a second."""
    future: Future[_CostFunction | None] = Future()

    def look_up() -> None:
        try:
            future.set_result(_listed_cost(setup))
        except Exception:  # turns do not depend on their costs
            _log.exception("genai-prices failed. The cost of model %s is not reported.", setup.model)
            future.set_result(None)

    threading.Thread(target=look_up, name="prices", daemon=True).start()
    return future


def _listed_cost(setup: PricedModel) -> _CostFunction | None:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        _log.info("genai-prices is not installed: only models with a declared price have costs")
        return None
    price: Callable[..., Any] = functools.partial(calc_price, model_ref=setup.model)
    # A gateway has its own prices.
    price = (
        functools.partial(price, provider_api_url=setup.base_url)
        if setup.base_url
        else functools.partial(price, provider_id=setup.provider.removesuffix("-responses"))
    )

    def cost_of(inputs: int, outputs: int, read: int = 0, write: int = 0) -> float:
        # genai-prices includes cached tokens in the input too. Without a cache price it applies the input price.
        cached = {name: n for name, n in (("cache_read_tokens", read), ("cache_write_tokens", write)) if n}
        return float(price(Usage(input_tokens=inputs, output_tokens=outputs, **cached)).total_price)

    def cost(usage: TokenCounts) -> float:
        read, write, _ = _split_input(usage)
        return cost_of(usage.input_tokens, usage.output_tokens, read, write)

    try:
        cost_of(1, 1)
    except (LookupError, ValueError) as error:
        _log.info(
            "the price of model %s:%s is unknown. Its cost is not reported: %s", setup.provider, setup.model, error
        )
        return None
    return cost
