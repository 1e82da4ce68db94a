"""Setup of span export: a separate provider, and an exporter that does not block a job if its collector is down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from importlib import metadata
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import HOST_NAME, PROCESS_PID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from flink_skills.endpoint import check_endpoint
from flink_skills.errors import ConfigError
from flink_skills.telemetry.settings import TelemetrySettings
from flink_skills.telemetry.tracing.console import LineExporter
from flink_skills.telemetry.tracing.ids import PresetIds
from flink_skills.telemetry.tracing.nonblocking_export import NonBlockingExporter, capture_sdk_log
from flink_skills.telemetry.tracing.observer import TracingObserver
from flink_skills.telemetry.tracing.sampler import TurnSampler

__all__ = ["ProviderShutdown", "open_tracing"]

_log = logging.getLogger("flink_skills.trace")
_SERVICE = "flink-skills"
_CLOSE_SECONDS = 2.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SAMPLER = "OTEL_TRACES_SAMPLER"
_HTTP = "http/protobuf"
# Spans with complete conversations are large, so the queue and the requests contain fewer of them.
_LARGE = {"OTEL_BSP_MAX_QUEUE_SIZE": 512, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": 64}


def open_tracing(settings: TelemetrySettings, *, redact: Callable[[str], str] | None = None) -> TracingObserver:
    """Create the observer for ``settings``, with an exporter that the ``OTEL_…`` environment variables configure.

    The collector is not contacted, so a job does not wait for it.

    Raises:
        ConfigError: An environment variable is invalid, or requires a package that is not installed.
    """
    ids = PresetIds()
    exporter = LineExporter() if settings.trace_exporter == "console" else _otlp(redact)
    provider = TracerProvider(id_generator=ids, resource=_resource(settings.agent), shutdown_on_exit=False)
    provider.add_span_processor(_batches(exporter, large=settings.trace_content == "full"))
    return TracingObserver(
        provider,
        ids,
        content=settings.trace_content,
        # A configured OpenTelemetry sampler decides alone.
        sampler=TurnSampler(0 if os.environ.get(_SAMPLER) else settings.trace_max_turns),
        redact=redact,
        close=ProviderShutdown(provider, exporter).close,
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
