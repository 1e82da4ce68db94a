"""What requests to models cost: prices that a job names, and those that the package genai-prices knows offline."""

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

__all__ = ["CostObserver", "Price"]

_log = logging.getLogger("flink_skills.telemetry")
_PER_MILLION = 1_000_000
_KEYS = ("input", "output")
_CACHE_KEYS = ("cache_read", "cache_write")


class Counted(Protocol):
    """The tokens of a request, as far as they have prices."""

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
    """USD per million tokens; ``cache_read`` and ``cache_write`` are the prices of the input tokens that a provider
    reads from its cache or writes to it.

    >>> Price.parse({"input": 1.25, "output": 10, "cache_read": 0.125}).cache_read
    0.125
    """

    input: float
    output: float
    cache_read: float
    cache_write: float

    @classmethod
    def parse(cls, value: Any) -> Price:
        """Return the price of a mapping, or of one number for all tokens, such as 0 for a local model.

        A mapping has ``input`` and ``output``, and may have ``cache_read`` and ``cache_write``, which default to
        ``input``. Raises :class:`ConfigError` for anything else.
        """
        if not isinstance(value, Mapping):
            value = dict.fromkeys(_KEYS, value)
        if not set(_KEYS) <= set(value) <= {*_KEYS, *_CACHE_KEYS} or not all(map(_is_price, value.values())):
            raise ConfigError(
                f"price is {value!r}: write USD per million tokens, such as {{'input': 1.25, 'output': 10.0}}, or 0 "
                "for a model that costs nothing; tokens of caches may have prices of their own, cache_read and "
                "cache_write"
            )
        cached = (float(value.get(key, value["input"])) for key in _CACHE_KEYS)
        return cls(float(value["input"]), float(value["output"]), *cached)

    def cost(self, usage: Counted) -> float:
        """Return the USD for the tokens of a usage."""
        read, write, rest = _parts(usage)
        of_input = rest * self.input + read * self.cache_read + write * self.cache_write
        return (of_input + usage.output_tokens * self.output) / _PER_MILLION


def _parts(usage: Counted) -> tuple[int, int, int]:
    """Return the input tokens read from a cache, those written to it and the others, which are never negative."""
    read = min(usage.cache_read_tokens, usage.input_tokens)
    write = min(usage.cache_write_tokens, usage.input_tokens - read)
    return read, write, usage.input_tokens - read - write


def _is_price(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


class Priced(Protocol):
    """A model setup, as far as its price is concerned."""

    @property
    def provider(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def base_url(self) -> str | None: ...
    @property
    def price(self) -> Any:
        """What :meth:`Price.parse` reads; None to look it up."""


_Cost = Callable[[Counted], float]


class CostObserver(Observer):
    """Sets the attribute ``cost`` (USD) of each ``chat`` whose model has a known price, when it ends, and of the turn:
    the sum of what this attempt at it asked for. An unknown price is no price: there is no such attribute then.

    It has to come before the observers that read the attribute. ``listed`` says of a setup without a price whether a
    list of prices may know it; without it none is asked.
    """

    def __init__(self, listed: Callable[[Any], bool] | None = None) -> None:
        self._listed = listed
        self._costs: dict[tuple[str, str, str | None], Future[_Cost | None] | None] = {}

    def started(self, activity: Activity) -> None:
        if activity.kind != "chat":
            return
        setup: Priced = activity.attributes["setup"]
        key = (setup.provider, setup.model, setup.base_url)
        if setup.price is None and key not in self._costs:
            listed = self._listed is not None and setup.model and self._listed(setup)
            self._costs[key] = _looked_up(setup) if listed else None

    def ended(self, activity: Activity) -> None:
        kept = activity.scope.kept
        if activity.kind == "chat":
            response = activity.attributes.get("response")
            cost_of = self._cost_of(activity.attributes["setup"]) if response is not None else None
            if response is not None and cost_of is not None:
                cost = cost_of(response.usage)
                activity.attributes["cost"] = cost
                kept["cost"] = kept.get("cost", 0.0) + cost
        elif activity.kind == "turn" and "cost" in kept:
            activity.attributes["cost"] = kept["cost"]

    def _cost_of(self, setup: Priced) -> _Cost | None:
        if setup.price is not None:
            return Price.parse(setup.price).cost
        found = self._costs.get((setup.provider, setup.model, setup.base_url))
        return found.result() if found is not None else None


def _looked_up(setup: Priced) -> Future[_Cost | None]:
    """Look a price up in a thread: the list takes half a second to load, and turns run on this loop."""
    found: Future[_Cost | None] = Future()

    def look_up() -> None:
        try:
            found.set_result(_listed_cost(setup))
        except Exception:  # a list that cannot be read costs its figures, not the turns
            _log.exception("the list of prices cannot be used: what %s costs is not reported", setup.model)
            found.set_result(None)

    threading.Thread(target=look_up, name="prices", daemon=True).start()
    return found


def _listed_cost(setup: Priced) -> _Cost | None:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        _log.info("genai-prices is not installed: only models with a price of their own have costs")
        return None
    price: Callable[..., Any] = functools.partial(calc_price, model_ref=setup.model)
    # A gateway has prices of its own.
    price = (
        functools.partial(price, provider_api_url=setup.base_url)
        if setup.base_url
        else functools.partial(price, provider_id=setup.provider.removesuffix("-responses"))
    )

    def cost_of(inputs: int, outputs: int, read: int = 0, write: int = 0) -> float:
        # Tokens of caches are part of the input there, too. A model without a price for them has one for its input.
        cached = {name: of for name, of in (("cache_read_tokens", read), ("cache_write_tokens", write)) if of}
        return float(price(Usage(input_tokens=inputs, output_tokens=outputs, **cached)).total_price)

    def cost(usage: Counted) -> float:
        read, write, _ = _parts(usage)
        return cost_of(usage.input_tokens, usage.output_tokens, read, write)

    try:
        cost_of(1, 1)
    except (LookupError, ValueError) as error:
        _log.info("what %s:%s costs is not known and not reported: %s", setup.provider, setup.model, error)
        return None
    return cost
