"""Export of spans: a separate provider, and an exporter that does not block a job if its collector is down."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from urllib.parse import unquote, urlsplit

from opentelemetry.sdk.resources import HOST_NAME, PROCESS_PID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from flink_skills.endpoint import check_endpoint, redact_text
from flink_skills.errors import ConfigError
from flink_skills.telemetry.tracing import PresetIds, TracingObserver, TurnSampler


class LineExporter(SpanExporter):
    """Exporter of each span as one line of JSON to standard error, which Flink adds to the log of the TaskManager."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            sys.stderr.write(span.to_json(indent=None) + "\n")
        sys.stderr.flush()
        return SpanExportResult.SUCCESS


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


_SERVICE = "flink-skills"
_CLOSE_SECONDS = 2.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SAMPLER = "OTEL_TRACES_SAMPLER"
_HTTP = "http/protobuf"
# Spans with complete conversations are large, so the queue and the requests contain fewer of them.
_LARGE = {"OTEL_BSP_MAX_QUEUE_SIZE": 512, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": 64}


def open_tracing(
    agent: str, exporter: str, content: str, max_turns: int, redact: Callable[[str], str] | None = None
) -> TracingObserver:
    """Create the observer, with an exporter that the ``OTEL_…`` environment variables configure.

    The collector is not contacted, so a job does not wait for it. The arguments are those of ``TelemetrySettings``.

    Raises:
        ConfigError: An environment variable is invalid, or requires a package that is not installed.
    """
    ids = PresetIds()
    span_exporter = LineExporter() if exporter == "console" else _otlp(redact)
    provider = TracerProvider(id_generator=ids, resource=_resource(agent), shutdown_on_exit=False)
    provider.add_span_processor(_batches(span_exporter, large=content == "full"))
    return TracingObserver(
        provider,
        ids,
        content=content,
        # A configured OpenTelemetry sampler decides alone.
        sampler=TurnSampler(0 if os.environ.get(_SAMPLER) else max_turns),
        redact=redact,
        close=ProviderShutdown(provider, span_exporter).close,
    )


def _batches(exporter: SpanExporter, *, large: bool) -> BatchSpanProcessor:
    if not large or any(name in os.environ for name in _LARGE):
        return BatchSpanProcessor(exporter)
    queue, batch = _LARGE.values()
    return BatchSpanProcessor(exporter, max_queue_size=queue, max_export_batch_size=batch)


def _resource(agent: str) -> Resource:
    """Return the resource of the spans. The ``OTEL_…`` environment variables take precedence."""
    defaults: dict[str, str | int] = {
        HOST_NAME: socket.gethostname(),
        PROCESS_PID: os.getpid(),
        "flink_skills.agent": agent,
    }
    with contextlib.suppress(metadata.PackageNotFoundError):
        defaults["service.version"] = metadata.version("flink-skills")
    configured = Resource.create()
    if str(configured.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        configured = configured.merge(Resource({SERVICE_NAME: _SERVICE}))
    return Resource(defaults).merge(configured)


def _otlp(redact: Callable[[str], str] | None) -> NonBlockingExporter:
    protocol_variable, protocol = next(
        ((name, os.environ[name]) for name in _PROTOCOLS if os.environ.get(name)), ("", _HTTP)
    )
    variable, endpoint = next(((name, os.environ[name]) for name in _ENDPOINTS if os.environ.get(name)), ("", ""))
    if protocol not in (_HTTP, "grpc"):
        raise ConfigError(f"invalid {protocol_variable}={protocol}. Supported protocols: {_HTTP}, grpc.")
    if endpoint and (protocol == _HTTP or "://" in endpoint):
        check_endpoint(endpoint, variable, "http://collector:4318")
    with capture_sdk_log() as lines:
        try:
            exporter = _grpc() if protocol == "grpc" else _http()
        except ValueError as error:
            raise ConfigError(f"invalid environment variable OTEL_EXPORTER_OTLP_…: {error}") from None
    if any("header" in line.lower() for line in lines):
        # Do not log the line: it contains the value of the variable.
        raise ConfigError(
            "OTEL_EXPORTER_OTLP_HEADERS is not valid. Set it to NAME=VALUE pairs, separated by commas, with "
            "URL-encoded values."
        )
    return NonBlockingExporter(exporter, _destination(endpoint), redact)


def _http() -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _grpc() -> SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found,unused-ignore]
            OTLPSpanExporter,
        )
    except ImportError as error:
        raise ConfigError(
            f"{_PROTOCOLS[1]}=grpc requires another package. Run pip install opentelemetry-exporter-otlp-proto-grpc on "
            f"the TaskManagers, or set {_PROTOCOLS[0]}={_HTTP} and the endpoint to the collector's HTTP port."
        ) from error
    exporter: SpanExporter = OTLPSpanExporter()
    return exporter


def _destination(endpoint: str) -> str:
    """Return the name of an endpoint for log lines, without user, password and query."""
    if "://" not in endpoint:
        return "the collector"
    parts = urlsplit(endpoint)
    return f"the collector at {parts.hostname}" + (f":{parts.port}" if parts.port else "")


class ProviderShutdown:
    """Shutdown of a provider that exports the remaining spans, and waits for at most two seconds."""

    def __init__(self, provider: TracerProvider, exporter: SpanExporter, seconds: float = _CLOSE_SECONDS) -> None:
        self._provider = provider
        self._exporter = exporter
        self._seconds = seconds

    async def close(self) -> None:
        """Export the remaining spans, and close the provider."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def shut_down() -> None:
            self._provider.shutdown()
            # The event loop may be closed already.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish)

        # The process would wait for a thread of the event loop's pool, so start a daemon thread.
        threading.Thread(target=shut_down, name="flink-skills-spans", daemon=True).start()
        try:
            await asyncio.wait_for(done, self._seconds)
        except asyncio.TimeoutError:
            _log.warning("the remaining spans are lost: their export did not finish in %g s", self._seconds)
            # Stop the waits between the attempts of the exporter.
            self._exporter.shutdown()
