"""What an option is: a key, how its value is read, a default and a meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from flink_skills.errors import ConfigError
from flink_skills.options.values import SecretValueError

__all__ = ["Option", "OptionFamily"]

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
        """Return the type of values in a configuration. It is ``list`` for an option with several texts.

        >>> Option("skills.from.paths", lambda value: (str(value),), (), "Directories.").config_type
        <class 'list'>
        """
        if isinstance(self.default, tuple):
            return list
        return str if self.default is None else type(self.default)

    def read(self, value: object) -> T:
        """Read ``value``; raises :class:`ConfigError` naming the key and how to write it."""
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
        """The option of a whole key; raises :class:`ConfigError` for one that lacks a part of the name."""
        name = key[len(self.prefix) :]
        if len(name.split(".")) < len(self.names.split(".")) or not all(name.split(".")):
            raise ConfigError(f"option {key}: write {self.prefix}{self.names}")
        return Option(key, self.parse, self.default, self.doc)
