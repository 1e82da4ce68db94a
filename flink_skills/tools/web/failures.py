"""Why a call of a web tool failed: a code that programs read, and words that tell the model what to do."""

from __future__ import annotations

from typing import Literal

__all__ = ["Code", "WebError"]

Code = Literal[
    "INVALID_ARGS",
    "INVALID_URL",
    "INVALID_QUERY",
    "BLOCKED_URL",
    "SSRF_BLOCKED_URL",
    "HTTP_STATUS",
    "UNSUPPORTED_CONTENT_TYPE",
    "HTTP_ERROR",
    "FETCH_ERROR",
    "DECODE_ERROR",
    "NOT_CONFIGURED",
]


class WebError(Exception):
    """Becomes the ``error`` of a result, as ``CODE: text``. Never leaves :mod:`flink_skills.tools.web`."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
