"""Provider errors in response bodies: status, names, words, and the pause before the next request.

Providers and the proxies before them use about twenty shapes. All clients read them here.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import html
import json
import math
import re
import reprlib
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from http import HTTPStatus
from itertools import islice
from typing import Any, NamedTuple

from flink_skills.endpoint import redact_text

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
# The word for a unit behind a blank.
_UNIT = re.compile(r"\s+(ms|[dhms](?!illi))[a-z]*")
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,9})?"
    r"(?:[Zz]|([+-][0-9]{2}):?([0-9]{2}))"
)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a provider accepts the request again, or None if it does not say."""
    for name, scale in (("retry-after-ms", 0.001), ("x-ms-retry-after-ms", 0.001), ("retry-after", 1.0)):
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
        at = headers.get(f"{prefix}-reset")
        if _number(at) is not None and not _number(headers.get(f"{prefix}-remaining")):
            found.append(seconds_of(at, 1.0, headers.get("date")) or 0.0)
    return max(found, default=None)


def seconds_of(value: Any, scale: float = 1.0, sent: str | None = None) -> float | None:
    """Return the seconds of a pause: a number, a duration such as ``37s``, or a date. Return None for any other value.

    A number above 1e9 is an instant in seconds or milliseconds since 1970.

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
        text = _UNIT.sub(r"\1", str(value)[:_MAX_LENGTH].strip(' "'))
        if (found := _until(text[2:].lower() if text.startswith("PT") else text, sent)) is not None:
            return found
        if (moment := _date(text)) is None:
            return None
        seconds = moment - _now(sent)
    if seconds > _MAX_SECONDS:
        seconds = seconds / (1000 if seconds > 1e11 else 1) - _now(sent)
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
    return None if moment is None else max(0.0, moment - _now(sent))


def _now(sent: str | None) -> float:
    now = _date(sent or "")
    return time.time() if now is None else now


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


_READ = 8_000
_SHOWN = 500
# Characters that are searched for words.
_MAX_TEXT = 64 * 1024
_DEEP = 6
_MOST = 5
_FIELDS = 100

# Fields that contain another part, and fields with words. Only letters and digits in their names are compared.
_INNER = ("error", "errors", "detail", "message", "baseresp", "metadata", "details", "raw")
_TEXTS = (
    *("message", "detail", "msg", "statusmsg", "errordescription", "errormessage", "description", "reason"),
    *("errormsg", "faultstring"),
)
_NUMBERS = ("code", "status", "statuscode", "status_code", "statusCode", "httpstatus", "errorcode")
_STATED = frozenset(_NUMBERS)
_NAMES = ("code", "errorcode", "status", "reason", "type", "error")
_PAUSES = {"retryafterms": 0.001, "retryafter": 1.0, "retryafterseconds": 1.0, "retrydelay": 1.0}
# Parts that identify a status in names and in words. The first match counts.
_BY_WORDS = {
    429: "ratelimit|toomanyrequests|throttl|insufficientquota|quotaexceeded|currentquota|exhausted",
    402: "billing|insufficientbalance|paymentrequired",
    401: "apikey|unauthenticated|unauthorized|authentication",
    403: "permission|forbidden|accessdenied",
    404: "notfound",
    413: "toolarge",
    529: "overloaded",
    503: "unavailable",
    504: "timeout|deadlineexceeded",
}
# Parts that say little in a sentence.
_BY_NAME = {
    400: "contextlength|invalid|badrequest|unsupported|contentfilter|failedprecondition",
    500: "internal|servererror|apierror",
}
# https://platform.minimax.io/docs/api-reference/errorcode
_MINIMAX = {1001: 504, 1002: 429, 1004: 401, 1008: 402, 1026: 400, 1027: 400, 1039: 429, 1041: 429, 1042: 400}
_MINIMAX |= {2013: 400, 2049: 401, 2056: 429}
# Keys that providers repeat, such as "sk-…abcd".
_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|rk|key|gsk|xai|hf|nvapi|pplx|r8)[-_][\w*.-]{6,}|\b(?:AIza|AKIA|eyJ)[\w*.-]{10,}|\bBearer\s+\S+",
    re.IGNORECASE,
)
_SPACES = re.compile("[ \\t\\r\\n\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
_OTHERS = re.compile(r"[^a-z0-9]+")
_TAG = re.compile(r"<(/?)([a-zA-Z]*)[^<>]*>|([^<]+)|<")
_HIDDEN = frozenset({"script", "style", "svg", "template", "noscript"})


class AnswerError(Exception):
    """A response that says that the request failed.

    Args:
        status: The error status.
        headers: The response headers.
        body: The JSON of its body, or its text.
        inside: Whether the response itself has the status 200. ``status`` is 0 if the body does not state one.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: Any, *, inside: bool = False) -> None:
        super().__init__(f"status {status or 200}")
        self.status_code = status or 503
        self.headers = headers
        self.body = body
        self.inside = inside
        self.is_nameless = not status
        #: The usage that the events before it stated, as the API writes it.
        self.counted: Mapping[str, Any] = {}


class ErrorContent(NamedTuple):
    """Content that an error body has.

    ``status`` is 0 if the body states none. ``names`` are its codes and types in lower case. ``retry_after`` is in
    seconds.
    """

    status: int = 0
    names: frozenset[str] = frozenset()
    words: str = ""
    retry_after: float | None = None


def error_content(body: Any) -> ErrorContent:
    """Return what an error body contains. The body is decoded JSON in any shape, or a string.

    >>> error_content([{"error": {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED"}}]).words
    'Slow down.'
    >>> error_content({"error": {"type": "overloaded_error", "message": "Overloaded"}}).status
    529
    """
    levels = list(_levels(body))
    words = _words(body)
    values = [level.get(field) for field in _NAMES for level in levels]
    named = [name for name in values if isinstance(name, str) and " " not in name]
    status = _status(levels, named, words)
    # A body of an unknown shape is shown as it is.
    shown = words or (reprlib.repr(body) if body and not isinstance(body, str) else "")
    return ErrorContent(status, frozenset(map(str.lower, named)), shown, _pause(levels))


def failure(body: Any, headers: Mapping[str, str]) -> AnswerError | None:
    """Return the error in the body if a response has status 200. Return None if the body declares no error."""
    if isinstance(body, list):
        is_error = bool(body) and isinstance(body[0], dict) and _declares_error(body[0])
    else:
        is_error = isinstance(body, dict) and _declares_error(body)
    return AnswerError(error_content(body).status, headers, body, inside=True) if is_error else None


def visible(text: str, secret: str = "") -> str:
    """Return provider text for a message: one line without keys, at most 500 characters.

    Control characters are shown as escapes. ``secret`` is replaced wherever it is.

    >>> visible("bad\\n key sk-abcdefgh\\x1b[2J")
    'bad key …\\\\x1b[2J'
    """
    text = text.replace(secret, "…") if secret else text
    text = _SPACES.sub(" ", redact_text(_KEY_LIKE.sub("…", text[:_READ]))).strip()
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"


def phrase_of(status: int) -> str:
    """Return the name that HTTP gives a status. An empty body has it."""
    return HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else ""


def _declares_error(body: Mapping[str, Any]) -> bool:
    error, more = body.get("error"), body.get("x_groq")
    if isinstance(more, dict) and more.get("error"):
        return True
    if any(error.values()) if isinstance(error, dict) else error:
        return True
    base = body.get("base_resp")
    if isinstance(base, dict) and base.get("status_code") not in (0, "0", None):
        return True
    if _of_choice(body):
        return True
    if body.get("choices") or body.get("content") or body.get("output"):
        # A number is not the status of an error there.
        return False
    if body.get("errors") or body.get("object") == "error" or body.get("type") == "error":
        return True
    return not _STATED.isdisjoint(body) and bool(_status_number(body))


def _letters(name: Any) -> str:
    return _OTHERS.sub("", str(name).lower())


def _levels(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in an error from the outside in. Their keys have only lower-case letters and digits."""
    if depth > _DEEP:
        return
    value = _unpacked(value)
    if isinstance(value, list):
        for each in value[:_MOST]:
            yield from _levels(each, depth + 1)
    elif isinstance(value, Mapping):
        level = {_letters(name): of for name, of in islice(value.items(), _FIELDS)}
        yield level
        known = [level[name] for name in _INNER if name in level] + [_of_choice(level)]
        for inner in known if any(known) else [of for of in level.values() if isinstance(of, Mapping)]:
            yield from _levels(inner, depth + 1)


def _of_choice(level: Mapping[str, Any]) -> Any:
    """Return the error inside the first choice."""
    choices = level.get("choices")
    return choices[0].get("error") if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def _unpacked(value: Any) -> Any:
    """Decode JSON in a string, which proxies put into errors. Return any other value unchanged."""
    if isinstance(value, str) and len(value) <= _MAX_TEXT and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _status_number(level: Mapping[str, Any]) -> int:
    for field in _NUMBERS:
        value = level.get(field)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 4:
            value = int(value)
        if isinstance(value, int) and (400 <= value < 600):
            return value
    return 0


def _status(levels: list[Mapping[str, Any]], named: list[str], words: str) -> int:
    for level in levels:
        if number := _status_number(level):
            return number
        code = level.get("statuscode")
        if "statusmsg" in level and isinstance(code, int) and code in _MINIMAX:
            return _MINIMAX[code]
    for name in map(_letters, named):
        if status := _found(name, _BY_WORDS) or _found(name, _BY_NAME):
            return status
    return _found(_letters(words[:_SHOWN]), _BY_WORDS)


def _found(letters: str, table: Mapping[int, str]) -> int:
    return next((status for status, parts in table.items() if any(part in letters for part in parts.split("|"))), 0)


def _pause(levels: list[Mapping[str, Any]]) -> float | None:
    for level in levels:
        for field, scale in _PAUSES.items():
            value = level.get(field)
            if isinstance(value, Mapping):
                value = value.get("seconds")  # Google's Duration
            if (seconds := seconds_of(value, scale)) is not None:
                return seconds
        headers = level.get("headers")
        if isinstance(headers, Mapping):  # OpenRouter
            names = {str(name).lower(): str(value) for name, value in islice(headers.items(), _FIELDS)}
            if (seconds := pause_of(names)) is not None:
                return seconds
    return None


def _words(value: Any, depth: int = 0) -> str:
    value = _unpacked(value)
    if isinstance(value, str):
        return _text(value)[:_READ]
    if depth > _DEEP:
        return ""
    if isinstance(value, list):
        return "; ".join(filter(None, (_words(each, depth + 1) for each in value[:_MOST])))[:_READ]
    if not isinstance(value, Mapping):
        return ""
    level = {_letters(name): of for name, of in islice(value.items(), _FIELDS)}
    found = [_words(level[name], depth + 1) for name in ("title", "error", "errors") if name in level]
    found.append(next(filter(None, (_words(level[name], depth + 1) for name in _TEXTS if name in level)), ""))
    found.append(_words(_of_choice(level), depth + 1))
    base, upstream = level.get("baseresp"), level.get("metadata")
    if isinstance(base, Mapping) and base.get("status_code") != 0:
        found.append(_words(base, depth + 1))
    if isinstance(upstream, Mapping) and (raw := _words(upstream.get("raw"), depth + 1)):
        found.append(f"{upstream.get('provider_name') or 'upstream'}: {raw}")
    if isinstance(place := level.get("loc"), list):
        found.insert(0, ".".join(map(str, place[:_FIELDS])))
    found = [text for at, text in enumerate(found) if text and text not in found[:at]]
    if not found:
        # A wrapper of a proxy or a gateway.
        found = [*filter(None, (_words(of, depth + 1) for of in level.values() if isinstance(of, Mapping)))][:1]
    if not found:
        found = [str(level[name]) for name in ("code", "type", "status") if isinstance(level.get(name), str)]
    return ": ".join(found)[:_READ]


def _text(text: str) -> str:
    """Remove the tags if the text is a page."""
    text = text[:_MAX_TEXT].strip()
    if not text.startswith("<"):
        return text
    pieces, title, hidden, in_title = [], "", "", False
    shown = "".join(part if at == 0 else part.partition("-->")[2] for at, part in enumerate(text.split("<!--")))
    for found in _TAG.finditer(shown):
        closes, tag, piece = found[1], (found[2] or "").lower(), (found[3] or "").strip()
        if hidden:
            hidden = "" if closes and tag == hidden else hidden
        elif tag in _HIDDEN and not closes:
            hidden = tag
        elif tag == "title":
            in_title = not closes
        elif piece and in_title:
            title = piece
        elif piece:
            pieces.append(piece)
    if title and title not in pieces:
        pieces.insert(0, title)
    return html.unescape(" ".join(pieces))
