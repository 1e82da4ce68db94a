"""Pauses that a provider asks for in the headers of its responses.

After an error without ``Retry-After``, a used-up quota states the pause. OpenAI, Azure and similar servers send
``x-ratelimit-remaining-requests`` and ``x-ratelimit-reset-requests``, and the same for ``tokens``. Anthropic sends
``anthropic-ratelimit-requests-remaining`` and ``-reset``, and the same for ``tokens``, ``input-tokens`` and
``output-tokens``.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import math
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

__all__ = ["pause_of", "retry_after", "seconds_of"]

_KINDS = ("requests", "tokens", "input-tokens", "output-tokens")
# Headers with the remaining quota, and with the time until all of it is available again.
_QUOTA_HEADERS = (
    *((f"x-ratelimit-remaining-{kind}", f"x-ratelimit-reset-{kind}") for kind in _KINDS[:2]),
    *((f"anthropic-ratelimit-{kind}-remaining", f"anthropic-ratelimit-{kind}-reset") for kind in _KINDS),
)

_MAX_LENGTH = 40
_MAX_SECONDS = 1e9
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_PART = r"(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)%s)?"
_DURATION = re.compile("".join(_PART % unit for unit in ("d", "h", "m(?!s)", "s", "ms", "(?:us|µs|μs)", "ns")))
_SCALES = (86_400.0, 3_600.0, 60.0, 1.0, 1e-3, 1e-6, 1e-9)
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,9})?"
    r"(?:[Zz]|([+-][0-9]{2}):?([0-9]{2}))"
)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a provider accepts the request again, or None if it does not say."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (seconds := seconds_of(headers.get(name), scale, headers.get("date"))) is not None:
            return seconds
    return None


def pause_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a provider that rejected a request accepts another one, or None if unknown.

    Without ``Retry-After`` it is the time until a used-up quota is available again. A header that is not valid is
    ignored. Instants are compared with the header ``date``, because the local clock may be wrong.

    Args:
        headers: Headers with names in lower case, or that ignore case.

    >>> pause_of({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s"})
    90.0
    """
    if (seconds := retry_after(headers)) is not None:
        return seconds
    found = []
    for remaining, reset in _QUOTA_HEADERS:
        left = _number(headers.get(remaining))
        if left is not None and left < 1 and (seconds := _until(headers.get(reset), headers.get("date"))) is not None:
            found.append(seconds)
    for prefix in ("x-ratelimit", "ratelimit"):
        at = _number(headers.get(f"{prefix}-reset"))
        if at is not None and not _number(headers.get(f"{prefix}-remaining")):
            # A number of seconds, or an instant in seconds or milliseconds since 1970.
            instant = at / 1000 if at > 1e11 else at
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
    return min(max(0.0, seconds), _MAX_SECONDS) if math.isfinite(seconds) else None


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def _until(text: str | None, sent: str | None) -> float | None:
    """Return the seconds of a duration such as ``6m0s`` or ``20ms``, of a plain number, or until an RFC 3339 instant.

    Return None for any other value.
    """
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
