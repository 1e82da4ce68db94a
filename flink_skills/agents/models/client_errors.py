"""Model errors for exceptions of client libraries: cause, location, retryability and fix."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from flink_skills.agents.models.quota import retry_after
from flink_skills.endpoint import redact
from flink_skills.errors import ModelError
from flink_skills.sources.os_errors import NO_DESCRIPTORS, os_error_hint

__all__ = ["explain"]

_RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
_FIXES = {
    400: "the provider does not accept the request: check the model's name and settings",
    401: "check the API key in {key}",
    402: "the account has no credit left",
    403: "the API key in {key} may not use this model",
    404: "check the model's name and base_url",
    408: "the provider gave up waiting, it is asked again",
    409: "the provider is busy with a conflicting request, it is asked again",
    413: "the conversation is too long: lower skills.prompt.max-chars or the session limits",
    422: "the provider does not accept the request: check the model's name and settings",
    429: "too many requests: lower skills.worker.max-in-flight or ask the provider for more",
}
# Errors about one request: another one may be answered.
_REJECTED = frozenset({400, 413, 422})
_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
# What providers echo of a key: "sk-…abcd" and the like.
_KEY_LIKE = re.compile(r"\b(?:sk|pk|rk|key|gsk|xai)[-_][\w*.-]{6,}|\bBearer\s+\S+", re.IGNORECASE)
_SHOWN = 300
_SHORTEST_KEY = 4

_BROKEN = frozenset(
    {
        "ReadError",
        "WriteError",
        "RemoteProtocolError",
        "ServerDisconnectedError",
        "ClientPayloadError",
        "ClientResponseError",
    }
)
_NO_COMPLETION = frozenset(
    {"UnexpectedModelBehavior", "ModelAPIError", "APIResponseValidationError", "ValidationError"}
)
# What the clients trip over in an answer that is JSON, but of another shape.
_MALFORMED = (ValueError, TypeError, AttributeError, LookupError)


def explain(error: Exception, *, model: str, place: str, timeout: float | None, key_variable: str | None) -> ModelError:
    """The :class:`ModelError` for any exception that a request raised. What it says never holds the key."""
    found = _explained(error, model=model, place=place, timeout=timeout, key_variable=key_variable)
    key = os.environ.get(key_variable, "") if key_variable else ""
    if len(key) < _SHORTEST_KEY or key not in str(found):
        return found
    # Some servers repeat it whole, and not all keys look like one.
    return ModelError(
        str(found).replace(key, "…"),
        retryable=found.retryable,
        retry_after=found.retry_after,
        rejects_request=found.rejects_request,
    )


def _explained(
    error: Exception, *, model: str, place: str, timeout: float | None, key_variable: str | None
) -> ModelError:
    where = f"model {model}" + (f" at {redact(place)}" if place else "")
    chain = list(_chain(error))
    status = next((s for s in map(_status, chain) if s is not None), None)
    if status is not None:
        return _for_status(status, chain, where, key_variable)
    if full := next(filter(None, map(_no_descriptors, chain)), ""):
        return ModelError(f"{where} cannot be called: {full}", retryable=True)
    kind = _kind(chain)
    if kind == "timeout":
        waited = f" within {timeout:g} s" if timeout is not None else ""
        return ModelError(
            f"{where} did not answer{waited}: raise skills.model.timeout if the model is slow", retryable=True
        )
    if kind == "connection":
        reason = _innermost(chain)
        fix = "check base_url and the network"
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            fix = "set SSL_CERT_FILE to the file of its certificate authority"
        return ModelError(f"{where} cannot be reached ({reason}): {fix}", retryable=True)
    if kind == "garbage":
        return ModelError(
            f"{where} returned a response that is not a chat completion ({_clean(str(error))}): "
            "check that base_url is the address of the API, and that the client libraries are compatible",
            retryable=True,
        )
    return ModelError(f"{where} could not be called: {type(error).__name__}: {_clean(str(error))}")


def _for_status(status: int, chain: list[BaseException], where: str, key_variable: str | None) -> ModelError:
    said = next((text for text in map(_said, chain) if text), "")
    retryable = (status in _RETRYABLE_STATUS or status >= 500) and not _is_out_of_quota(chain)
    if status == 429 and not retryable:
        fix = "the account has no quota left"
    elif status >= 500:
        fix = "the provider has a fault; the request is retried"
    else:
        key = key_variable or "the provider's environment variable"
        fix = _FIXES.get(status, "see what the provider says about this status").format(key=key)
    shown = f" ({said})" if said else ""
    return ModelError(
        f"{where} answered with status {status}{shown}: {fix}",
        retryable=retryable,
        retry_after=_retry_after(chain) if retryable else None,
        rejects_request=status in _REJECTED,
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status >= 300 else None


def _no_descriptors(error: BaseException) -> str:
    """Return the problem of the worker's host and the fix. Libraries report it as a failed connection."""
    if not isinstance(error, OSError) or error.errno not in NO_DESCRIPTORS:
        return ""
    return f"the worker has no file descriptors left ({error.strerror}): {os_error_hint(error)}"


def _kind(chain: list[BaseException]) -> str:
    """What kind of failure it was. The innermost cause says it best: some client libraries report a refused
    connection as a timeout. Classes are named, not imported: the libraries differ in theirs."""
    for error in reversed(chain):
        name = type(error).__name__
        if "ConnectionTimeout" in name:
            return "connection"
        if isinstance(error, (TimeoutError, asyncio.TimeoutError)) or "Timeout" in name:
            return "timeout"
        if isinstance(error, OSError) or "Connect" in name or name in _BROKEN:
            return "connection"
    if any(isinstance(error, _MALFORMED) or type(error).__name__ in _NO_COMPLETION for error in chain):
        return "garbage"
    return "other"


def _is_out_of_quota(chain: list[BaseException]) -> bool:
    """Whether a 429 is about money, so that waiting does not help."""
    for error in chain:
        body = _error_object(error)
        if body.get("code") in _QUOTA or body.get("type") in _QUOTA:
            return True
    return False


def _error_object(error: BaseException) -> Mapping[str, Any]:
    body = getattr(error, "body", None)
    if isinstance(body, Mapping):
        inner = body.get("error")
        return inner if isinstance(inner, Mapping) else body
    return {}


def _said(error: BaseException) -> str:
    """The provider's own words, cut and without anything that looks like a key."""
    message = _error_object(error).get("message")
    return _clean(message) if isinstance(message, str) else ""


def _innermost(chain: list[BaseException]) -> str:
    # The plainest words: "Connection refused" rather than "Connection error."
    for error in reversed(chain):
        if str(error).strip():
            return _clean(str(error))
    return type(chain[-1]).__name__


def _clean(text: str) -> str:
    line = " ".join(_KEY_LIKE.sub("…", text).split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"


def _retry_after(chain: list[BaseException]) -> float | None:
    for error in chain:
        headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
        if headers is None:
            continue
        seconds = retry_after(headers)
        if seconds is not None:
            return seconds
    return None
