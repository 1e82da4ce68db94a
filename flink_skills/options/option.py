"""Options: a key, a default, a description, and the notation of values.

Values have Flink's own notation of durations, sizes and lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from flink_skills.endpoint import check_endpoint
from flink_skills.errors import ConfigError

_DURATION_SECONDS = {
    "ms": 0.001,
    "milli": 0.001,
    "millis": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}
_SIZE_BYTES = {
    "b": 1,
    "bytes": 1,
    "k": 2**10,
    "kb": 2**10,
    "m": 2**20,
    "mb": 2**20,
    "g": 2**30,
    "gb": 2**30,
    "t": 2**40,
    "tb": 2**40,
}
_USER = re.compile(r"([1-9]\d{0,9})(?::([1-9]\d{0,9}))?")
_REFERENCE = re.compile(r"\$\{(?:env:[^{}]+|file:/[^{}]+)\}")
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


class SecretValueError(ValueError):
    """A value that cannot be used and that no message may repeat."""


def parse_duration(value: object) -> float:
    """Seconds of a duration such as ``30 s``, ``5 min`` or a plain number of seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("a duration is not negative")
        return float(value)
    return _quantity(value, _DURATION_SECONDS, "s", "write a duration such as '30 s', '500 ms' or '5 min'")


def parse_size(value: object) -> int:
    """Bytes of a size such as ``64 mb`` or a plain number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("a size is not negative")
        return value
    return int(_quantity(value, _SIZE_BYTES, "b", "write a size such as '64 mb' or '4096'"))


def _quantity(value: object, units: Mapping[str, float], default_unit: str, advice: str) -> float:
    """Return a number with an optional unit as a number. Raise :class:`ValueError` with ``advice``."""
    match = _NUMBER_AND_UNIT.fullmatch(str(value))
    unit = match.group(2).lower() or default_unit if match else ""
    if match is None or unit not in units:
        raise ValueError(advice)
    return float(match.group(1)) * units[unit]


def parse_size_up_to(most: int) -> Callable[[object], int]:
    """Return what reads sizes of 1 to ``most`` bytes."""

    def parse(value: object) -> int:
        size = parse_size(value)
        if not 1 <= size <= most:
            raise ValueError(f"write a size of 1 to {most} bytes")
        return size

    return parse


def parse_bool(value: object) -> bool:
    """``true`` or ``false``."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "false"):
        return text == "true"
    raise ValueError("write 'true' or 'false'")


def parse_count(value: object) -> int:
    """A whole number that is not negative."""
    if isinstance(value, bool):
        raise ValueError("write a whole number")
    try:
        number = int(str(value).strip())
    except ValueError:
        raise ValueError("write a whole number") from None
    if number < 0:
        raise ValueError("the number must not be negative")
    return number


def parse_positive(value: object) -> int:
    """A whole number of at least 1."""
    number = parse_count(value)
    if number == 0:
        raise ValueError("the number must be at least 1")
    return number


def parse_text(value: object) -> str:
    """Any text."""
    return str(value)


def parse_endpoint(value: object) -> str:
    """The http:// or https:// address of a server, or an empty text."""
    text = str(value).strip()
    if text and not text.startswith("${"):  # then it is known, and checked, in the worker
        try:
            check_endpoint(text, "the address", "https://10.0.0.1:6443", references=True, credentials=False)
        except ConfigError as error:
            raise SecretValueError(str(error)) from None
    return text


def parse_list(value: object) -> tuple[str, ...]:
    """Items of a list, given as a list, in Flink's ``a;b`` notation or as a YAML flow list."""
    if isinstance(value, (list, tuple)):
        return tuple(_item(v) for v in value)
    text = str(value).strip()
    if text.startswith("[") and text.endswith("]"):
        import yaml

        try:
            items = yaml.safe_load(text)
        except yaml.YAMLError:  # its message quotes the text, which may hold a secret
            raise ValueError("write a list such as [a, b], or a;b") from None
        return tuple(_item(v) for v in items)
    return tuple(part.strip().strip("'\"") for part in text.split(";") if part.strip())


def parse_folder(value: object) -> str:
    """Return an absolute path. The empty string means the default."""
    text = str(value)
    if text and not Path(text).is_absolute():
        raise ValueError(f"TaskManagers have other working directories: write {str(Path(text).absolute())!r}")
    return text


def parse_folders(value: object) -> tuple[str, ...]:
    """A list of absolute paths."""
    return tuple(parse_folder(item) for item in parse_list(value) if item)


def parse_user(value: object) -> str:
    """Return ``uid:gid``, both above 0. The gid defaults to the uid."""
    match = _USER.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("write numbers as in '65534:65534', not 0")
    return f"{match[1]}:{match[2] or match[1]}"


def parse_user_value(value: object) -> str:
    """Return the value of a custom key as a string, as in Flink. A list or mapping becomes JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, (list, tuple, Mapping)):
        try:
            return json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError):
            pass
    raise SecretValueError("write a string, a number, a boolean, or a list or mapping of these")


def parse_reference(value: object) -> str:
    """``${env:NAME}`` or ``${file:/path}``. What else there is could be a secret, so no message repeats it."""
    text = str(value).strip()
    if not _REFERENCE.fullmatch(text):
        raise SecretValueError(
            "write a reference, ${env:NAME} or ${file:/path}, so that no secret is in the job's plan"
        )
    return text


def parse_optional_reference(value: object) -> str:
    """A reference as :func:`parse_reference` reads it, or nothing."""
    return parse_reference(value) if str(value).strip() else ""


def _item(value: object) -> str:
    if isinstance(value, (Mapping, list, tuple, set)):
        raise ValueError("write strings in the list instead of mappings or lists")
    return str(value)


def one_of(*allowed: str) -> Callable[[object], str]:
    """Return a parser for one of some words. Case does not matter."""
    by_folded = {word.lower(): word for word in allowed}

    def parse(value: object) -> str:
        word = by_folded.get(str(value).strip().lower())
        if word is None:
            raise ValueError("write one of " + ", ".join(allowed))
        return word

    return parse


T = TypeVar("T")


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option: its key, how its value is read, its default and what it does."""

    key: str
    parse: Callable[[object], T]
    default: T
    doc: str

    @property
    def config_type(self) -> type:
        """Return the type of values in a configuration. It is ``list`` for an option with several strings.

        >>> Option("skills.from.paths", lambda value: (str(value),), (), "Directories.").config_type
        <class 'list'>
        """
        if isinstance(self.default, tuple):
            return list
        return str if self.default is None else type(self.default)

    def read(self, value: object) -> T:
        """Return the parsed ``value``. Raise :class:`ConfigError` with the key and the notation if it is invalid."""
        try:
            return self.parse(value)
        except SecretValueError as error:
            raise ConfigError(f"option {self.key}: {error}") from None
        except ValueError as error:
            raise ConfigError(f"option {self.key}: cannot use {value!r}: {error}") from None


@dataclass(frozen=True)
class OptionFamily(Generic[T]):
    """Options of one kind whose keys end in a name that the job chooses: ``prefix`` and then what ``names`` shows."""

    prefix: str
    names: str
    parse: Callable[[object], T]
    default: T
    doc: str

    def option(self, key: str) -> Option[T]:
        """Return the option of a key. Raise :class:`ConfigError` if a part of the name is missing."""
        name = key[len(self.prefix) :]
        if len(name.split(".")) < len(self.names.split(".")) or not all(name.split(".")):
            raise ConfigError(f"option {key}: write {self.prefix}{self.names}")
        return Option(key, self.parse, self.default, self.doc)
