"""Exporter of spans as lines of JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

__all__ = ["LineExporter"]


class LineExporter(SpanExporter):
    """Exporter of each span as one line of JSON to standard error, which Flink adds to the log of the TaskManager."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            sys.stderr.write(span.to_json(indent=None) + "\n")
        sys.stderr.flush()
        return SpanExportResult.SUCCESS
