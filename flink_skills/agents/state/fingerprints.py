"""Digests of what a step requests, which are the same in every process."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import hashlib
import json
import uuid
from typing import Any

from pydantic import BaseModel


def fingerprint(*values: Any) -> str:
    """Return a short digest of values, which is the same in every process.

    Objects that are not data contribute only their type. The digest is empty if nothing can be compared.
    """
    try:
        return digest(*values)[:16]
    except (TypeError, ValueError, RecursionError):
        return ""


def digest(*values: Any) -> str:
    """Return the SHA-256 digest of values, which no one can find for other values.

    Raises:
        TypeError, ValueError, RecursionError: The values cannot be compared.
    """
    return hashlib.sha256(_canonical(values).encode("utf-8", "surrogatepass")).hexdigest()


def _data(value: Any) -> Any:
    """Return the data of an object that is the same in another process."""
    if isinstance(value, BaseModel):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {of.name: getattr(value, of.name) for of in dataclasses.fields(value)}
    if isinstance(value, (dt.date, dt.time, decimal.Decimal, uuid.UUID)):
        return str(value)
    # Not its text, which may be an address in memory; and members of sets have no order.
    return type(value).__qualname__


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_data).encode
