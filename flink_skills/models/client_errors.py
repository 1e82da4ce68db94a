"""Model errors for exceptions of client libraries: cause, location, retryability and fix."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

from flink_skills.endpoint import redact, tls_fix
from flink_skills.errors import ModelError
from flink_skills.models.error_bodies import AnswerError, error_content, pause_of, phrase_of, visible
from flink_skills.sources.locking import NO_DESCRIPTORS, os_error_hint

_RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
_FIXES = {
    400: "the provider does not accept the request: check the model's name and settings",
    402: "the account has no credit left",
    404: "check the model's name and base_url",
    408: "the provider gave up waiting, it is asked again",
    409: "the provider is busy with a conflicting request, it is asked again",
    413: "the conversation is too long: lower skills.prompt.max-chars or the session limits",
    422: "the provider does not accept the request: check the model's name and settings",
    429: "too many requests: lower skills.worker.max-in-flight or ask the provider for more",
}
# The server closed a connection that was open.
_BROKEN_OFF = frozenset(
    {
        *("ClientOSError", "ClientPayloadError", "ConnectionResetError", "IncompleteRead", "ReadError"),
        *("RemoteProtocolError", "ServerDisconnectedError"),
    }
)
# Errors about one request: another one may be answered.
_REJECTED = frozenset({400, 413, 422})
_QUOTA = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_error", "exceeded_current_quota_error"}
)
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


def explain(
    error: Exception,
    *,
    model: str,
    place: str,
    timeout: float | None,
    key_variable: str | None,
) -> ModelError:
    """Return the :class:`ModelError` for any exception that a request raised. Its message never contains the key.

    ``key_variable`` is the environment variable of the key. None: it is not known. Empty: requests contain no key.
    """
    key = os.environ.get(key_variable, "") if key_variable else ""
    # Some servers repeat it whole, and not all keys look like one.
    key = key if len(key) >= _SHORTEST_KEY else ""
    where = f"model {model}" + (f" at {redact(place)}" if place else "")
    chain = list(_chain(error))
    status = next((s for s in map(_status, chain) if s is not None), None)
    if status is not None:
        return _for_status(status, chain, where, place=place, key_variable=key_variable, key=key)
    if full := next(filter(None, map(_no_descriptors, chain)), ""):
        return ModelError(f"{where} cannot be called: {full}", retryable=True)
    kind = _kind(chain)
    if kind == "timeout":
        waited = f" within {timeout:g} s" if timeout is not None else ""
        return ModelError(
            f"{where} did not answer{waited}: raise skills.model.timeout if the model is slow", retryable=True
        )
    if kind == "connection":
        reason = _innermost(chain, key)
        if fix := tls_fix(place, reason):
            return ModelError(f"{where} cannot be reached ({reason}): {fix} in base_url", retryable=True)
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            fix = "set SSL_CERT_FILE to the file of its certificate authority"
        elif any(type(link).__name__ in _BROKEN_OFF for link in chain):
            return ModelError(_broken_off(where, place, reason), retryable=True)
        else:
            fix = "check base_url and the network"
        return ModelError(f"{where} cannot be reached ({reason}): {fix}", retryable=True)
    if kind == "garbage":
        return ModelError(
            f"{where} returned a response that is not a chat completion ({visible(str(error), key)}): "
            "check that base_url is the address of the API, and that the client libraries are compatible",
            retryable=True,
        )
    return ModelError(f"{where} could not be called: {type(error).__name__}: {visible(str(error), key)}")


def _broken_off(where: str, place: str, reason: str) -> str:
    """Return the message about a connection that the server, or a proxy before it, closed."""
    scheme = ", and that base_url has the right scheme: a server with TLS needs https://"
    return (
        f"{where} closed the connection before the whole response arrived ({reason}): check the log of the server and "
        f"the timeouts of proxies before it{scheme if place.startswith('http:') else ''}"
    )


def _key_fix(status: int, variable: str | None) -> str:
    if variable == "":
        return "the request contains no API key: name the environment variable of the key in api_key_env"
    if variable and not os.environ.get(variable, "").strip():
        return f"the request contains no API key: set {variable} where the turns run"
    key = f"the API key in {variable or 'the environment variable of the provider'}"
    return f"check {key}" if status == 401 else f"{key} may not use this model"


def _for_status(
    status: int, chain: list[BaseException], where: str, *, place: str, key_variable: str | None, key: str
) -> ModelError:
    # The innermost error has the whole body: libraries pass on only a part.
    bodies = [error_content(body) for body in map(_body, reversed(chain)) if body]
    words = next((of.words for of in bodies if of.words), "") or phrase_of(status)
    # Waiting does not help if the account has no money.
    no_quota = any(of.names & _QUOTA for of in bodies)
    retryable = (status in _RETRYABLE_STATUS or status >= 500) and not no_quota
    if status == 429 and not retryable:
        fix = "the account has no quota left"
    elif status >= 500:
        fix = "the provider has a fault; the request is retried"
    elif status in (401, 403):
        fix = _key_fix(status, key_variable)
    else:
        fix = tls_fix(place, words) or _FIXES.get(status, "see what the provider says about this status")
    answer = next((error for error in chain if isinstance(error, AnswerError)), None)
    inside = ", in a response with status 200" if answer is not None and answer.inside else ""
    shown = "an error" if answer is not None and answer.is_nameless else f"status {status}"
    return ModelError(
        f"{where} answered with {shown}{f' ({visible(words, key)})' if words else ''}{inside}: {fix}",
        retryable=retryable,
        retry_after=_pause(chain, [of.retry_after for of in bodies]) if retryable else None,
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


def _body(error: BaseException) -> Any:
    """Return the response body that an error carries."""
    try:
        text = getattr(getattr(error, "response", None), "text", None)
    except RuntimeError:  # httpx: the response was not read
        text = None
    return text if isinstance(text, str) and text else getattr(error, "body", None)


def _innermost(chain: list[BaseException], key: str) -> str:
    # The plainest words: "Connection refused" rather than "Connection error."
    for error in reversed(chain):
        if str(error).strip():
            return visible(str(error), key)
    return type(chain[-1]).__name__


def _pause(chain: list[BaseException], of_bodies: list[float | None]) -> float | None:
    """Return the pause that the provider asks for, in headers or else in the body."""
    for error in chain:
        headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
        if headers is not None and (seconds := pause_of(headers)) is not None:
            return seconds
    return next((seconds for seconds in of_bodies if seconds is not None), None)
