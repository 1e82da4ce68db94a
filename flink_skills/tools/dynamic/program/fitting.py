"""A JSON value as a function expects it, by its annotation."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import pathlib
import re
import typing
import uuid
from dataclasses import MISSING, is_dataclass
from typing import Any

from .annotations import DICTS, LISTS, SETS, is_literal, is_union, members_of, parts_of, unwrapped

__all__ = ["Problems", "fit_members", "fitted", "iso_text"]

#: Messages about arguments. Each names the path of its argument.
Problems = typing.List[str]  # noqa: UP006

_ISO_DATE = re.compile(r"([0-9]{4})(-?)([0-9]{2})\2([0-9]{2})")
_ISO_TIME = re.compile(
    r"T?([0-9]{2})(?:(:?)([0-9]{2})(?:\2([0-9]{2})(?:[.,]([0-9]+))?)?)?([Zz]|[+-][0-9]{2}(?::?[0-9]{2}){0,2})?"
)


def iso_text(text: str) -> str:
    """A date, a time or both in the form of ISO 8601 that ``fromisoformat`` of each Python reads.

    Before Python 3.11 it reads no fraction of one digit, no ``Z`` and no form without separators. Digits after the
    sixth of a fraction are dropped. Raises :class:`ValueError` for another form, such as one with the number of a week.

    >>> iso_text("10:20:30.5"), iso_text("20260105 102030Z")
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


_READ_TEXT: dict[Any, Any] = {
    datetime.datetime: lambda text: datetime.datetime.fromisoformat(iso_text(text)),
    datetime.date: lambda text: datetime.date.fromisoformat(iso_text(text)),
    datetime.time: lambda text: datetime.time.fromisoformat(iso_text(text)),
    uuid.UUID: uuid.UUID,
    pathlib.Path: pathlib.Path,
    pathlib.PurePath: pathlib.PurePath,
    bytes: str.encode,
}
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_SHOWN_VALUE_CHARS = 80


def fitted(value: Any, hint: Any, where: str, problems: Problems) -> Any:
    """A JSON value as ``hint`` asks for it; what does not fit is added to ``problems``."""
    hint, _ = unwrapped(hint)
    origin, parts = parts_of(hint)
    if hint in (Any, object) or isinstance(hint, typing.TypeVar):
        return value
    if is_union(origin):
        return _fit_union(value, parts, where, problems)
    if is_literal(origin):
        for choice in parts:
            if choice == value and type(choice) is type(value):
                return choice
        return _wrong(f"{where} must be one of {_list(parts)}", value, problems)
    return _fit_class(value, origin or hint, parts, where, problems)


def _fit_class(value: Any, kind: Any, parts: tuple[Any, ...], where: str, problems: Problems) -> Any:
    if kind in (None, type(None)):
        return None if value is None else _wrong(f"{where} must be null", value, problems)
    if kind in SETS or kind in LISTS or kind is tuple:
        return _fit_list(value, kind, parts, where, problems)
    if kind in DICTS:
        if not isinstance(value, dict):
            return _wrong(f"{where} must be an object", value, problems)
        of = parts[1] if len(parts) == 2 else Any
        return {name: fitted(part, of, f"{where}.{name}", problems) for name, part in value.items()}
    if kind in _READ_TEXT:
        return _fit_text(value, kind, where, problems)
    if kind is decimal.Decimal:
        return _fit_number(value, decimal.Decimal, "a number", where, problems)
    if not isinstance(kind, type):
        return value
    if issubclass(kind, enum.Enum):
        return _fit_enum(value, kind, where, problems)
    if kind is bool:
        known = _BOOLEANS.get(str(value).strip().lower()) if isinstance(value, (bool, int, str)) else None
        return _wrong(f"{where} must be true or false", value, problems) if known is None else known
    if kind is int:
        return _fit_number(value, int, "an integer", where, problems)
    if kind is float:
        return _fit_number(value, float, "a number", where, problems)
    if kind is str:
        return value if isinstance(value, str) else _wrong(f"{where} must be a string", value, problems)
    return _fit_object(value, kind, where, problems)


def _fit_object(value: Any, kind: type, where: str, problems: Problems) -> Any:
    if hasattr(kind, "model_validate"):
        return _made(lambda: kind.model_validate(value), value, where, problems)
    members = members_of(kind)
    if members is None:
        return value
    if not isinstance(value, dict):
        return _wrong(f"{where} must be an object", value, problems)
    before = len(problems)
    given = fit_members(value, members, where, problems)
    if len(problems) > before:
        return None
    return _made(lambda: kind(**given), value, where, problems) if is_dataclass(kind) else given


def fit_members(
    given: dict[str, Any], members: dict[str, tuple[Any, Any]], where: str, problems: Problems, *, more: bool = False
) -> dict[str, Any]:
    """The members of an object as annotated; ``more`` permits others, which stay as they are."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        place = f"{where}.{name}" if where else name
        if name not in members:
            found[name] = value
            if not more:
                problems.append(f"{place} is unknown{_near(name, members, given)}")
            continue
        hint, default = members[name]
        # Models often write null for what they could leave out.
        found[name] = None if value is None and default is None else fitted(value, hint, place, problems)
    for name, (_, default) in members.items():
        if default is MISSING and name not in given:
            problems.append(f"{where}.{name} is missing" if where else f"{name} is missing")
    return found


def _fit_union(value: Any, parts: tuple[Any, ...], where: str, problems: Problems) -> Any:
    possible = []
    for part in parts:
        wrong: Problems = []
        found = fitted(value, part, where, wrong)
        if not wrong:
            if type(found) is type(value) and found == value:
                return found  # as it is, rather than converted
            possible.append(found)
    if possible:
        return possible[0]
    wanted = " or ".join(str(getattr(part, "__name__", part)) for part in parts)
    return _wrong(f"{where} must be {wanted}", value, problems)


def _fit_list(value: Any, kind: Any, parts: tuple[Any, ...], where: str, problems: Problems) -> Any:
    if not isinstance(value, list):
        return _wrong(f"{where} must be an array", value, problems)
    fixed = kind is tuple and parts and parts[-1] is not Ellipsis and parts != ((),)
    if fixed and len(parts) != len(value):
        return _wrong(f"{where} must be an array of {len(parts)} elements", value, problems)
    of = parts[0] if parts and parts[0] != () else Any
    items = [
        fitted(item, parts[number] if fixed else of, f"{where}.{number}", problems) for number, item in enumerate(value)
    ]
    if kind in SETS:
        return _made(lambda: frozenset(items) if kind is frozenset else set(items), value, where, problems)
    return tuple(items) if kind is tuple else items


def _fit_number(value: Any, kind: Any, what: str, where: str, problems: Problems) -> Any:
    try:
        if isinstance(value, str) or (isinstance(value, (int, float)) and (kind is not int or value == int(value))):
            return kind(str(value).strip() if kind is decimal.Decimal or isinstance(value, str) else value)
    except (ValueError, OverflowError, decimal.InvalidOperation):
        return _wrong(f"{where} must be {what}", value, problems)
    return _wrong(f"{where} must be {what}", value, problems)


def _fit_text(value: Any, kind: Any, where: str, problems: Problems) -> Any:
    if not isinstance(value, str):
        return _wrong(f"{where} must be a string", value, problems)
    return _made(lambda: _READ_TEXT[kind](value), value, where, problems)


def _fit_enum(value: Any, kind: Any, where: str, problems: Problems) -> Any:
    for member in kind:
        if member.value == value or (value == str(member.value) and not isinstance(member.value, str)):
            return member
    if isinstance(value, str) and value in kind.__members__:
        return kind[value]
    return _wrong(f"{where} must be one of {_list([member.value for member in kind])}", value, problems)


def _made(make: Any, value: Any, where: str, problems: Problems) -> Any:
    try:
        return make()
    except Exception as error:  # whatever the tool's own class raises
        return _wrong(f"{where} is not valid: {str(error) or type(error).__name__}", value, problems)


def _wrong(message: str, value: Any, problems: Problems) -> None:
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= _SHOWN_VALUE_CHARS else shown[:_SHOWN_VALUE_CHARS] + "…"
    problems.append(f"{message} (given: {shown})")


def _near(name: str, members: typing.Iterable[str], given: typing.Iterable[str]) -> str:
    import difflib

    free = [member for member in members if member not in given]
    near = difflib.get_close_matches(name, free, n=1)
    return f": did you mean {near[0]}?" if near else ""


def _list(values: typing.Iterable[Any]) -> str:
    return ", ".join(json.dumps(value, ensure_ascii=False, default=str) for value in values)
