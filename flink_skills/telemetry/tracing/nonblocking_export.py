"""Span exporter whose failures do not affect turns: it drops spans and logs a warning at most once a minute."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import unquote

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from flink_skills.endpoint import redact_text

__all__ = ["NonBlockingExporter", "capture_sdk_log"]

_log = logging.getLogger("flink_skills.trace")
_SECONDS_BETWEEN_WARNINGS = 60.0
_MAX_REASON_LENGTH = 200
_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_MIN_SECRET_LENGTH = 4
_QUERY = re.compile(r"\?\S+")
# Loggers that write one or more lines for each batch that cannot be exported.
_SDK_LOGGERS = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.util.re",
)

_captured: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("flink_skills_sdk_log", default=None)


class _CaptureLines(logging.Filter):
    """Filter that captures the log lines of this exporter. Lines of other users of the library are logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        lines = _captured.get()
        if lines is None:
            return True
        lines.append(record.getMessage())
        return False


_CAPTURE_LINES = _CaptureLines()


@contextlib.contextmanager
def capture_sdk_log() -> Iterator[list[str]]:
    """Capture the log lines of OpenTelemetry's exporters inside the context instead of logging them."""
    for name in _SDK_LOGGERS:
        logging.getLogger(name).addFilter(_CAPTURE_LINES)
    lines: list[str] = []
    token = _captured.set(lines)
    try:
        yield lines
    finally:
        _captured.reset(token)


class NonBlockingExporter(SpanExporter):
    """Exporter that wraps another one and logs lost spans, with the reason, at most once a minute.

    Log lines are redacted, and contain no header values of the variables ``OTEL_EXPORTER_OTLP_HEADERS`` and
    ``OTEL_EXPORTER_OTLP_TRACES_HEADERS``.

    Args:
        exporter: The wrapped exporter.
        destination: Name of the collector in log lines.
        redact: Removes secrets from a string.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        destination: str,
        redact: Callable[[str], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exporter = exporter
        self._destination = destination
        self._redact = redact or (lambda text: text)
        self._secrets = sorted(_header_values(), key=len, reverse=True)
        self._clock = clock
        self._lost_spans = 0
        self._last_warning: float | None = None
        self._closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._closed:
            return SpanExportResult.FAILURE
        with capture_sdk_log() as lines:
            try:
                result = self._exporter.export(spans)
            except Exception as error:  # transports raise various types
                lines.append(f"{type(error).__name__}: {error}")
                result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            if self._last_warning is not None:
                self._last_warning = None
                _log.info("%s accepts spans again", self._destination)
            return result
        self._lost_spans += len(spans)
        now = self._clock()
        if self._last_warning is None or now - self._last_warning >= _SECONDS_BETWEEN_WARNINGS:
            self._last_warning = now
            _log.warning(
                "%s did not accept %d spans, which are lost. Turns continue. Reason: %s",
                self._destination,
                self._lost_spans,
                self._reason(lines),
            )
            self._lost_spans = 0
        return result

    def _reason(self, lines: Sequence[str]) -> str:
        # The first line states the cause. The last one states only the number of attempts.
        text = self._redact(lines[0]) if lines else "unknown"
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = _QUERY.sub("", redact_text(" ".join(text.split())))
        return text[:_MAX_REASON_LENGTH]

    def shutdown(self) -> None:
        if not self._closed:
            self._closed = True
            with capture_sdk_log():
                self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _header_values() -> set[str]:
    """Return the header values of the environment variables, both URL-encoded and decoded."""
    encoded = [part.partition("=")[2].strip() for name in _HEADERS for part in os.environ.get(name, "").split(",")]
    values = {form for value in encoded for form in (value, unquote(value))}
    # Add the token after the scheme in "Authorization: Bearer TOKEN".
    values |= {value.rpartition(" ")[2] for value in values}
    return {value for value in values if len(value) >= _MIN_SECRET_LENGTH}
