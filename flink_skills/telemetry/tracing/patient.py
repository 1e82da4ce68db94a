"""An exporter that does not mind when nobody takes its spans."""

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

__all__ = ["PatientExporter", "sdk_log"]

_log = logging.getLogger("flink_skills.trace")
_SECONDS_BETWEEN_WARNINGS = 60.0
_LONGEST_REASON = 200
_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_SHORTEST_SECRET = 4
_QUERY = re.compile(r"\?\S+")
# They write one or more lines for each batch that nobody takes.
_CHATTY = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.util.re",
)

_said: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("flink_skills_sdk_log", default=None)


class _TakeLines(logging.Filter):
    """Keeps to ourselves what the library logs on our account; what it logs for others goes its way."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = _said.get()
        if said is None:
            return True
        said.append(record.getMessage())
        return False


_TAKE_LINES = _TakeLines()


@contextlib.contextmanager
def sdk_log() -> Iterator[list[str]]:
    """What OpenTelemetry's exporters log inside, in place of logging it."""
    for name in _CHATTY:
        logging.getLogger(name).addFilter(_TAKE_LINES)
    said: list[str] = []
    token = _said.set(said)
    try:
        yield said
    finally:
        _said.reset(token)


class PatientExporter(SpanExporter):
    """Exports by ``exporter``, and says once a minute at most that and why spans got lost.

    ``place`` is what a log calls the other side. No text is logged that has not been through ``hides``, and no value
    of the headers that the variables ``OTEL_EXPORTER_OTLP_HEADERS`` give.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        place: str,
        hides: Callable[[str], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exporter = exporter
        self._place = place
        self._hides = hides or (lambda text: text)
        self._secrets = sorted(_header_values(), key=len, reverse=True)
        self._clock = clock
        self._lost = 0
        self._warned: float | None = None
        self._closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._closed:
            return SpanExportResult.FAILURE
        with sdk_log() as said:
            try:
                result = self._exporter.export(spans)
            except Exception as error:  # whatever a transport raises
                said.append(f"{type(error).__name__}: {error}")
                result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            if self._warned is not None:
                self._warned = None
                _log.info("%s takes spans again", self._place)
            return result
        self._lost += len(spans)
        now = self._clock()
        if self._warned is None or now - self._warned >= _SECONDS_BETWEEN_WARNINGS:
            self._warned = now
            _log.warning(
                "%s did not take %d spans, which are lost; turns go on: %s",
                self._place,
                self._lost,
                self._reason(said),
            )
            self._lost = 0
        return result

    def _reason(self, said: Sequence[str]) -> str:
        # The first line has the cause, the last only that there were enough attempts.
        text = self._hides(said[0]) if said else "no reason given"
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = _QUERY.sub("", redact_text(" ".join(text.split())))
        return text[:_LONGEST_REASON]

    def shutdown(self) -> None:
        if not self._closed:
            self._closed = True
            with sdk_log():
                self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _header_values() -> set[str]:
    """The values of headers as they are sent, and as they are written."""
    written = [part.partition("=")[2].strip() for name in _HEADERS for part in os.environ.get(name, "").split(",")]
    values = {form for value in written for form in (value, unquote(value))}
    # Also what follows the scheme in "Authorization: Bearer TOKEN".
    values |= {value.rpartition(" ")[2] for value in values}
    return {value for value in values if len(value) >= _SHORTEST_SECRET}
