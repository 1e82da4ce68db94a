"""Quota that a provider announces in the headers of its responses.

OpenAI, Azure and the servers that speak like them send ``x-ratelimit-limit-requests``,
``x-ratelimit-remaining-requests`` and ``x-ratelimit-reset-requests``, and the same for ``tokens``. Anthropic sends
``anthropic-ratelimit-requests-limit``, ``-remaining`` and ``-reset``, and the same for ``tokens``, ``input-tokens`` and
``output-tokens``.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["KINDS", "Allowance", "Quota", "pause_of", "retry_after", "seconds_of"]

KINDS = ("requests", "tokens", "input-tokens", "output-tokens")
"""Kinds of quota that a provider counts."""

# Kinds with their headers: what is left, the limit, when all of it is available again.
_PARTS = ("remaining", "limit", "reset")
_OPENAI = tuple((kind, [f"x-ratelimit-{part}-{kind}" for part in _PARTS]) for kind in KINDS[:2])
_ANTHROPIC = tuple((kind, [f"anthropic-ratelimit-{kind}-{part}" for part in _PARTS]) for kind in KINDS)

_MAX_LENGTH = 40
# Seconds of the longest pause: more is forever as well.
_LONGEST = 1e9
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_PART = r"(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)%s)?"
_DURATION = re.compile("".join(_PART % unit for unit in ("d", "h", "m(?!s)", "s", "ms", "(?:us|µs|μs)", "ns")))
_SCALES = (86_400.0, 3_600.0, 60.0, 1.0, 1e-3, 1e-6, 1e-9)
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,9})?"
    r"(?:[Zz]|([+-][0-9]{2}):?([0-9]{2}))"
)


class Allowance(NamedTuple):
    """The rest of one kind of quota.

    ``limit`` is the whole quota, None if it is not announced. ``seconds`` is the time until all of it is available
    again, None if it is not announced.
    """

    remaining: float
    limit: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Quota:
    """The quota of a response: what is left by kind (see :data:`KINDS`), and the seconds of ``Retry-After``.

    >>> Quota.read({"x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1m0s"}).allowances
    {'requests': Allowance(remaining=59.0, limit=None, seconds=60.0)}
    """

    allowances: Mapping[str, Allowance]
    retry_after: float | None = None

    def __bool__(self) -> bool:
        return bool(self.allowances) or self.retry_after is not None

    @classmethod
    def read(cls, headers: Mapping[str, str]) -> Quota:
        """Read the headers of a response. A header that is not valid is ignored.

        ``headers`` has names in lower case, or ignores case as those of HTTP libraries do. An instant is compared with
        the header ``date``, because the clock of this machine may be wrong.
        """
        allowances = {}
        for kind, (left, limit, reset) in (*_OPENAI, *_ANTHROPIC):
            remaining = headers.get(left)
            if remaining is not None and (number := _number(remaining)) is not None:
                ends = headers.get(reset)
                seconds = None if ends is None else _until(ends, headers.get("date"))
                allowances[kind] = Allowance(number, _number(headers.get(limit)), seconds)
        return cls(allowances, retry_after(headers))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a provider accepts the request again, or None if it does not say."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (seconds := seconds_of(headers.get(name), scale, headers.get("date"))) is not None:
            return seconds
    return None


def pause_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a provider that rejected a request accepts another one, or None if unknown.

    Without ``Retry-After`` it is the time until a used-up quota is available again.

    >>> pause_of({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s"})
    90.0
    """
    if (seconds := retry_after(headers)) is not None:
        return seconds
    found = [
        of.seconds for of in Quota.read(headers).allowances.values() if of.remaining < 1 and of.seconds is not None
    ]
    for prefix in ("x-ratelimit", "ratelimit"):
        reset = _number(headers.get(f"{prefix}-reset"))
        if reset is not None and not _number(headers.get(f"{prefix}-remaining")):
            # A number of seconds, or an instant in seconds or milliseconds since 1970.
            instant = reset / 1000 if reset > 1e11 else reset
            now = _date(headers.get("date") or "") or time.time()
            found.append(max(0.0, instant - now) if instant > 1e9 else instant)
    return max(found, default=None)


def seconds_of(value: Any, scale: float = 1.0, sent: str | None = None) -> float | None:
    """Return the seconds of a pause: a number, a duration such as ``37s``, or a date. Return None for any other value.

    Args:
        value: A header or a field in a body.
        scale: The seconds that the number 1 means.
        sent: The response date. Dates count from it, because the local clock may be wrong.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value) * scale
    except (ValueError, OverflowError):
        text = str(value)[:_MAX_LENGTH]
        if (found := _until(text, sent)) is not None:
            return found
        moment = _date(text)
        if moment is None:
            return None
        now = _date(sent or "")
        seconds = moment - (time.time() if now is None else now)
    return min(max(0.0, seconds), _LONGEST) if math.isfinite(seconds) else None


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def _until(text: str, sent: str | None) -> float | None:
    """The seconds of a duration such as ``6m0s`` or ``20ms``, of a plain number, or until an RFC 3339 instant."""
    if not text or len(text) > _MAX_LENGTH:
        return None
    if _NUMBER.fullmatch(text):
        return float(text)
    if found := _DURATION.fullmatch(text):
        return sum(float(part) * scale for part, scale in zip(found.groups(), _SCALES, strict=True) if part)
    moment = _instant(text)
    if moment is None:
        return None
    now = _date(sent) if sent is not None else None
    return max(0.0, moment - (time.time() if now is None else now))


@lru_cache(maxsize=64)
def _instant(text: str) -> float | None:
    found = _INSTANT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, hours, minutes = found.groups()
    try:
        zone = dt.timedelta(hours=int(hours or 0), minutes=int(f"{(hours or '+')[0]}{minutes or 0}"))
        moment = dt.datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=dt.timezone(zone)
        )
        return moment.timestamp() + float(fraction or 0)
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=64)
def _date(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
