"""The names that Anthropic and OpenAI give their errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["status_of"]

# The status that each error has when it is the status of an answer.
_STATUS = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "insufficient_quota": 429,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
    "server_error": 500,
    "timeout_error": 504,
}


def status_of(error: Mapping[str, Any]) -> int:
    """Return the status of an error inside an answer with the status 200.

    >>> status_of({"type": "overloaded_error", "message": "Overloaded"}), status_of({"code": 400}), status_of({})
    (529, 400, 503)
    """
    status = error.get("status", error.get("code"))
    if isinstance(status, int) and 400 <= status < 600:
        return status
    names = (str(error.get(name)) for name in ("code", "type"))
    return next((_STATUS[name] for name in names if name in _STATUS), 503)
