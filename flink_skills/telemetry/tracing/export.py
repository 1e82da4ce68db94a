"""Where spans go: an own provider, and an exporter that costs a job nothing when its collector is down."""

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
from flink_skills.telemetry.tracing.ids import GivenIds
from flink_skills.telemetry.tracing.observer import TracingObserver
from flink_skills.telemetry.tracing.patient import PatientExporter, sdk_log
from flink_skills.telemetry.tracing.share import TurnShare

__all__ = ["Closing", "open_tracing"]

_log = logging.getLogger("flink_skills.trace")
_SERVICE = "flink-skills"
_CLOSE_SECONDS = 2.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SAMPLER = "OTEL_TRACES_SAMPLER"
_HTTP = "http/protobuf"
# Spans with whole conversations are large: fewer wait, and fewer are in one request.
_LARGE = {"OTEL_BSP_MAX_QUEUE_SIZE": 512, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": 64}


def open_tracing(settings: TelemetrySettings, *, hides: Callable[[str], str] | None = None) -> TracingObserver:
    """The observer that ``settings`` ask for, with an exporter as the variables ``OTEL_…`` of this process say.

    Raises :class:`~flink_skills.errors.ConfigError` for variables that cannot be used, or that need a package which is
    not there. Whether anybody takes the spans is not looked at: a job does not wait for its collector.
    """
    ids = GivenIds()
    exporter = LineExporter() if settings.trace_exporter == "console" else _otlp(hides)
    provider = TracerProvider(id_generator=ids, resource=_resource(settings.agent), shutdown_on_exit=False)
    provider.add_span_processor(_batches(exporter, large=settings.trace_content == "full"))
    return TracingObserver(
        provider,
        ids,
        content=settings.trace_content,
        # A sampler that was asked for decides alone.
        share=TurnShare(0 if os.environ.get(_SAMPLER) else settings.trace_max_turns),
        hides=hides,
        close=Closing(provider, exporter).close,
    )


def _batches(exporter: SpanExporter, *, large: bool) -> BatchSpanProcessor:
    if not large or any(name in os.environ for name in _LARGE):
        return BatchSpanProcessor(exporter)
    queue, batch = _LARGE.values()
    return BatchSpanProcessor(exporter, max_queue_size=queue, max_export_batch_size=batch)


def _resource(agent: str) -> Resource:
    """Who makes the spans. What the variables ``OTEL_…`` say comes first."""
    ours: dict[str, str | int] = {
        HOST_NAME: socket.gethostname(),
        PROCESS_PID: os.getpid(),
        "flink_skills.agent": agent,
    }
    with contextlib.suppress(metadata.PackageNotFoundError):
        ours["service.version"] = metadata.version("flink-skills")
    said = Resource.create()
    if str(said.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        said = said.merge(Resource({SERVICE_NAME: _SERVICE}))
    return Resource(ours).merge(said)


def _otlp(hides: Callable[[str], str] | None) -> PatientExporter:
    said, protocol = next(((name, os.environ[name]) for name in _PROTOCOLS if os.environ.get(name)), ("", _HTTP))
    variable, endpoint = next(((name, os.environ[name]) for name in _ENDPOINTS if os.environ.get(name)), ("", ""))
    if protocol not in (_HTTP, "grpc"):
        raise ConfigError(f"{said}={protocol}: spans are sent by {_HTTP}, or by grpc with its exporter")
    if endpoint and (protocol == _HTTP or "://" in endpoint):
        check_endpoint(endpoint, variable, "http://collector:4318")
    with sdk_log() as lines:
        try:
            exporter = _grpc() if protocol == "grpc" else _http()
        except ValueError as error:
            raise ConfigError(f"a variable OTEL_EXPORTER_OTLP_… cannot be used: {error}") from None
    if any("header" in line.lower() for line in lines):
        # Nor is this one: the library would have written it to the log.
        raise ConfigError(
            "OTEL_EXPORTER_OTLP_HEADERS cannot be read: write NAME=VALUE, several separated by commas, the values "
            "URL-encoded"
        )
    return PatientExporter(exporter, _place(endpoint), hides)


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
            f"{_PROTOCOLS[1]}=grpc needs another exporter: pip install opentelemetry-exporter-otlp-proto-grpc on the "
            f"TaskManagers, or set {_PROTOCOLS[0]}={_HTTP} and the endpoint to the collector's port for HTTP"
        ) from error
    exporter: SpanExporter = OTLPSpanExporter()
    return exporter


def _place(endpoint: str) -> str:
    """What a log may show of an endpoint: no user, no password, no query."""
    if "://" not in endpoint:
        return "the collector"
    parts = urlsplit(endpoint)
    return f"the collector at {parts.hostname}" + (f":{parts.port}" if parts.port else "")


class Closing:
    """Hands over the spans that are left, and waits for it at most two seconds."""

    def __init__(self, provider: TracerProvider, exporter: SpanExporter, seconds: float = _CLOSE_SECONDS) -> None:
        self._provider = provider
        self._exporter = exporter
        self._seconds = seconds

    async def close(self) -> None:
        """Nothing is exported afterwards."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def shut_down() -> None:
            self._provider.shutdown()
            # The loop may be gone by then.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish)

        # Not a thread of the loop's pool, whose end the process would wait for.
        threading.Thread(target=shut_down, name="flink-skills-spans", daemon=True).start()
        try:
            await asyncio.wait_for(done, self._seconds)
        except asyncio.TimeoutError:
            _log.warning("the spans that were left were not taken in %g s, and are lost", self._seconds)
            # Ends the waits between its attempts.
            self._exporter.shutdown()
