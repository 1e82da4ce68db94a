"""Events as they wait in keyed state, for somebody who reads a savepoint: nothing of the job is run to show them."""

from __future__ import annotations

import importlib
import io
import json
import pickle
import struct
from typing import Any

from flink_skills.agents.state.event import to_plain

__all__ = ["plain_event", "stored_event"]

# A version, whether it has a timestamp, and the timestamp; see TurnState.java.
_HEADER = struct.Struct(">BBq")

# What rows, records and the values in them are made of. None of these does more than hold what it is given.
_PLAIN = {
    ("flink_skills.agents.state.event", "Record"),
    ("pyflink.common.types", "_create_row"),
    ("pyflink.common.types", "RowKind"),
    ("datetime", "date"),
    ("datetime", "datetime"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
    ("decimal", "Decimal"),
    # How older protocols write bytes.
    ("_codecs", "encode"),
}


def stored_event(data: bytes) -> dict[str, Any]:
    """An event as plain data: ``timestamp`` where it has one, and ``event``; where only the job itself could open it,
    ``bytes``, how many it has."""
    _, has_timestamp, timestamp = _HEADER.unpack_from(data)
    content = data[_HEADER.size :]
    found: dict[str, Any] = {"timestamp": timestamp} if has_timestamp else {}
    try:
        return {**found, "event": plain_event(content)}
    except ValueError:
        return {**found, "bytes": len(content)}


def plain_event(content: bytes) -> Any:
    """Return the event of its bytes as plain data, without running code of the job.

    Raises ``ValueError`` if only the job itself can read the event.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        try:
            event = to_plain(_PlainUnpickler(io.BytesIO(content)).load())
            json.dumps(event)
        # A pickle of anything else can fail in any way.
        except Exception as error:
            raise ValueError("the event is not plain data") from error
    return event


class _PlainUnpickler(pickle.Unpickler):
    """Opens what consists of plain values alone: a pickle of anything else could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PLAIN:
            raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")
        return getattr(importlib.import_module(module), name)
