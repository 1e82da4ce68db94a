"""Values of columns: what a column of a table can hold, and how a value of an agent's record becomes one.

A column takes what means the same in its type, and refuses what would lose something: 3.0 is a whole number, 3.5 is
not; a text of digits is a number, ``"three"`` is not. A STRING column takes everything: what has structure becomes
JSON.

What comes out are plain values that a stage in Java makes rows of: a date is its number of days since 1970, a time its
nanoseconds since midnight, a point in time a pair of seconds since 1970 and nanoseconds, a decimal its text, a map a
list of pairs, a row a tuple. The other side is ``TableRows`` of the bridge; both must change together.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from flink_skills.agents.state.event import to_plain

_ISO_DATE = re.compile(r"([0-9]{4})(-?)([0-9]{2})\2([0-9]{2})")
_ISO_TIME = re.compile(
    r"T?([0-9]{2})(?:(:?)([0-9]{2})(?:\2([0-9]{2})(?:[.,]([0-9]+))?)?)?([Zz]|[+-][0-9]{2}(?::?[0-9]{2}){0,2})?"
)


class MisfitError(ValueError):
    """A value that its column cannot hold. ``reason`` states what the column expects, without the value, for logs."""

    def __init__(self, reason: str, value: object) -> None:
        self.reason = reason
        super().__init__(f"{reason}, got {_shown(value)}")


@dataclass(frozen=True)
class ColumnType:
    """A type of SQL as plain data, which a plan can contain.

    ``size`` is the maximum length of strings and bytes, where 0 means no limit, or the precision of numbers and times.
    ``parts`` are the fields of a row by name, the element of an array, or key and value of a map.
    """

    kind: str
    nullable: bool = True
    size: int = 0
    scale: int = 0
    parts: tuple[tuple[str, ColumnType], ...] = ()

    def __str__(self) -> str:
        text = self.kind
        if self.kind == "ROW":
            text += "<" + ", ".join(f"{name} {of}" for name, of in self.parts) + ">"
        elif self.parts:
            text += "<" + ", ".join(str(of) for _, of in self.parts) + ">"
        elif self.kind == "DECIMAL":
            text += f"({self.size}, {self.scale})"
        elif self.size:
            text += f"({self.size})"
        return text + ("" if self.nullable else " NOT NULL")

    def to_json(self) -> list[Any]:
        parts = [[name, of.to_json()] for name, of in self.parts]
        return [self.kind, self.nullable, self.size, self.scale, parts]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> ColumnType:
        kind, nullable, size, scale, parts = data
        return cls(kind, nullable, size, scale, tuple((name, cls.from_json(of)) for name, of in parts))


_WIDTHS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def fit(value: Any, of: ColumnType) -> Any:
    """``value`` as a column of type ``of`` takes it. Raises :class:`MisfitError`.

    >>> fit("3", ColumnType("INT")), fit({"a": 1}, ColumnType("STRING"))
    (3, '{"a": 1}')
    """
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None:
        if not of.nullable:
            raise MisfitError("expected a value for a NOT NULL column", None)
        return None
    return _FITS[of.kind](value, of)


def _string(value: Any, of: ColumnType) -> str:
    text = value if isinstance(value, str) else _text(value)
    if of.size and len(text) > of.size:
        raise MisfitError(f"expected at most {of.size} characters", value)
    # A lone surrogate is not a valid character, so the encodings of sinks reject it.
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def _text(value: Any) -> str:
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    plain = to_plain(value)
    if isinstance(plain, str):
        return plain
    try:
        return json.dumps(plain, ensure_ascii=False)
    except ValueError:
        raise MisfitError(f"expected integers of at most {sys.get_int_max_str_digits():,} digits", value) from None


def _boolean(value: Any, of: ColumnType) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise MisfitError("expected true or false", value)


def _number(value: Any) -> decimal.Decimal:
    """Return a number, or a string that contains a number, as a decimal."""
    if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal, str)):
        raise MisfitError("expected a number", value)
    try:
        return decimal.Decimal(value) if isinstance(value, int) else decimal.Decimal(str(value).strip())
    except decimal.InvalidOperation:
        raise MisfitError("expected a number", value) from None


def _integer(value: Any, of: ColumnType) -> int:
    number = _number(value)
    if not number.is_finite() or number != number.to_integral_value():
        raise MisfitError("expected a whole number", value)
    most = 1 << (_WIDTHS[of.kind] - 1)
    if not -most <= number < most:
        raise MisfitError(f"expected a number in the range of {of.kind}", value)
    return int(number)


def _float(value: Any, of: ColumnType) -> float:
    number = _number(value)
    if number.is_snan():
        raise MisfitError("expected a number", value)
    found = float(number)
    if of.kind == "FLOAT" and math.isfinite(found) and abs(found) > 3.4028235e38:
        raise MisfitError("expected a number in the range of FLOAT", value)
    return found


def _decimal(value: Any, of: ColumnType) -> str:
    number = _number(value)
    if not number.is_finite():
        raise MisfitError("expected a finite number for a DECIMAL column", value)
    found = number
    # Before rounding too: of 1e999999999 no digits could be written out.
    if not _has_more_digits(number, of):
        with decimal.localcontext(decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)):
            found = number.quantize(decimal.Decimal(1).scaleb(-of.scale))
    if _has_more_digits(found, of):
        raise MisfitError(f"expected a number with the digits of DECIMAL({of.size}, {of.scale})", value)
    return str(found)


def _has_more_digits(number: decimal.Decimal, of: ColumnType) -> bool:
    return number != 0 and number.adjusted() >= of.size - of.scale


def _date(value: Any, of: ColumnType) -> int:
    return (_day(value) - _EPOCH.date()).days


def _day(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    if isinstance(value, str):
        try:
            return dt.date.fromisoformat(_iso_text(value))
        except ValueError:
            return _moment(value).date()
    raise MisfitError("expected a date as YYYY-MM-DD", value)


def _time(value: Any, of: ColumnType) -> int:
    if isinstance(value, str):
        try:
            value = dt.time.fromisoformat(_iso_text(value))
        except ValueError:
            raise MisfitError("expected a time of day as HH:MM:SS", value) from None
    if not isinstance(value, dt.time):
        raise MisfitError("expected a time of day as HH:MM:SS", value)
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) * 1000


_EPOCH = dt.datetime(1970, 1, 1)


def _moment(value: Any) -> dt.datetime:
    """Return a point in time, without a zone if the value has none. Numbers are milliseconds since 1970, UTC."""
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return _EPOCH + dt.timedelta(milliseconds=value)
        if isinstance(value, str):
            return dt.datetime.fromisoformat(_iso_text(value))
    except (ValueError, OverflowError):
        pass  # reported below
    raise MisfitError("expected a time as YYYY-MM-DD HH:MM:SS or in milliseconds since 1970", value)


def _instant(value: Any, of: ColumnType) -> tuple[int, int]:
    """Return seconds and nanoseconds since 1970. A value without a zone is treated as UTC."""
    moment = _moment(value)
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.timezone.utc).replace(tzinfo=None)
    seconds, rest = divmod(moment - _EPOCH, dt.timedelta(seconds=1))
    return seconds, rest.microseconds * 1000


def _bytes(value: Any, of: ColumnType) -> bytes:
    if isinstance(value, str):
        data = value.encode("utf-8", "replace")
    elif isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
    else:
        data = _text(value).encode()
    if of.size and len(data) > of.size:
        raise MisfitError(f"expected at most {of.size} bytes", value)
    return data


def _array(value: Any, of: ColumnType) -> list[Any]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return [fit(item, of.parts[0][1]) for item in value]
    raise MisfitError("expected a list", value)


def _fields(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def _map(value: Any, of: ColumnType) -> list[tuple[Any, Any]]:
    fields = _fields(value)
    if not isinstance(fields, Mapping):
        raise MisfitError("expected a mapping", value)
    (_, key), (_, item) = of.parts
    return [(fit(name, key), fit(entry, item)) for name, entry in fields.items()]


def _row(value: Any, of: ColumnType) -> tuple[Any, ...]:
    fields = _fields(value)
    if isinstance(fields, Mapping):
        values = [fields.get(name) for name, _ in of.parts]
    elif isinstance(fields, (list, tuple)) and len(fields) == len(of.parts):
        values = list(fields)
    else:
        raise MisfitError(f"expected a row with the fields {', '.join(name for name, _ in of.parts)}", value)
    return tuple(fit(item, part) for item, (_, part) in zip(values, of.parts, strict=True))


_FITS: dict[str, Callable[[Any, ColumnType], Any]] = {
    "STRING": _string,
    "BOOLEAN": _boolean,
    **dict.fromkeys(_WIDTHS, _integer),
    "FLOAT": _float,
    "DOUBLE": _float,
    "DECIMAL": _decimal,
    "DATE": _date,
    "TIME": _time,
    "TIMESTAMP": _instant,
    "TIMESTAMP_LTZ": _instant,
    "BYTES": _bytes,
    "ARRAY": _array,
    "MAP": _map,
    "ROW": _row,
}


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits, which Python does not write out
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}…"


def _iso_text(text: str) -> str:
    """Return a date, a time or both in the format of ISO 8601 that ``fromisoformat`` of each Python reads.

    Before Python 3.11 it reads no fraction of one digit, no ``Z`` and no form without separators. Digits after the
    sixth of a fraction are dropped. Raises :class:`ValueError` for another form, such as one with the number of a week.

    >>> _iso_text("10:20:30.5"), _iso_text("20260105 102030Z")
    ('10:20:30.500000', '2026-01-05T10:20:30+00:00')
    """
    text = text.strip()
    day, shown, clock = _ISO_DATE.match(text), "", text
    if day:
        shown, clock = f"{day[1]}-{day[3]}-{day[4]}", text[day.end() + 1 :]
        if len(text) == day.end():
            return shown
    found = _ISO_TIME.fullmatch(clock)
    if not found or (day and clock[0] == "T"):
        raise ValueError(f"{text!r} is not a date or time of ISO 8601")
    hour, _, minute, second, fraction, zone = found.groups()
    of_second = f".{fraction[:6]:0<6}" if fraction else ""
    pairs = re.findall("[0-9]{2}", zone or "")
    offset = (
        "+00:00" if zone in ("Z", "z") else zone[0] + ":".join([*pairs, "00"][: max(2, len(pairs))]) if zone else ""
    )
    return f"{shown}{'T' if day else ''}{hour}:{minute or '00'}:{second or '00'}{of_second}{offset}"
