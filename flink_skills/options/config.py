"""The options that a job has set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from flink_skills.errors import ConfigError
from flink_skills.options.catalog import SkillOptions
from flink_skills.options.option import Option, OptionFamily

__all__ = ["SkillConfig"]

T = TypeVar("T")


class SkillConfig:
    """Values of options. Reading one that was never set gives its default.

    >>> config = SkillConfig().set(SkillOptions.TURN_TIMEOUT, "2 min")
    >>> config.get(SkillOptions.TURN_TIMEOUT)
    120.0
    """

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._values: dict[str, Any] = {}
        if values is not None and not isinstance(values, Mapping):
            raise ConfigError(f"SkillConfig: values is of type {type(values).__name__}: give a dict of key to value")
        for key, value in (values or {}).items():
            self.set(key, value)

    @overload
    def get(self, option: Option[T]) -> T: ...
    @overload
    def get(self, option: str) -> Any: ...
    def get(self, option: Option[Any] | str) -> Any:
        """The value of ``option`` (an :class:`Option` or a key)."""
        option = _option(option)
        return self._values.get(option.key, option.default)

    def family(self, family: OptionFamily[T]) -> dict[str, T]:
        """The values of a family's options that were set, by what follows the prefix.

        >>> SkillConfig({"skills.env.report.TOKEN": "${env:TOKEN}"}).family(SkillOptions.SKILL_ENV)
        {'report.TOKEN': '${env:TOKEN}'}
        """
        prefix = family.prefix
        return {key[len(prefix) :]: value for key, value in self._values.items() if key.startswith(prefix)}

    def set(self, option: Option[Any] | str, value: object) -> SkillConfig:
        """Set a value, checked now. Raises :class:`ConfigError` or :class:`UnknownNameError`."""
        option = _option(option)
        self._values[option.key] = option.read(value)
        return self

    def is_set(self, option: Option[Any]) -> bool:
        return option.key in self._values

    def merged_over(self, base: SkillConfig) -> SkillConfig:
        """A new configuration in which the values of this one win over those of ``base``."""
        merged = SkillConfig()
        merged._values = {**base._values, **self._values}
        return merged

    def to_json(self) -> dict[str, Any]:
        """The values that were set, by key."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in sorted(self._values.items())}

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @classmethod
    def from_assignments(cls, assignments: Iterable[str]) -> SkillConfig:
        """Read ``KEY=VALUE`` words, as ``--set`` takes them."""
        config = cls()
        for word in assignments:
            key, sign, value = word.partition("=")
            if not sign:
                raise ConfigError(f"--set {word}: write KEY=VALUE, such as skills.turn.timeout='2 min'")
            config.set(key.strip(), value.strip())
        return config


def _option(option: Any) -> Option[Any]:
    """Return an option, by its key if need be. Raises :class:`ConfigError` for anything else."""
    if isinstance(option, str):
        return SkillOptions.by_key(option)
    if isinstance(option, Option):
        return option
    raise ConfigError(
        f"an option is {option!r}: give a constant of SkillOptions, or a key such as 'skills.turn.timeout'"
    )
