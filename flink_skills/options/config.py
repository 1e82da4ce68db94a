"""Options that a job has set, and their read-only form for the code that runs in the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.options.catalog import SkillOptions
from flink_skills.options.option import Option, OptionFamily

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


_REQUIRED: Any = object()
_USER = SkillOptions.USER


class JobConfig:
    """Read-only options of a job, including its custom keys ``skills.user.*``.

    Args:
        options: The options of the job. None: no option is set.
        resolve: Replaces the references in the value of a custom key. It receives the key and the value.

    >>> config = JobConfig(SkillConfig({"skills.user.tenant-limit": 5}))
    >>> config.get("skills.user.tenant-limit"), config.get("skills.user.region", default="eu")
    ('5', 'eu')
    """

    __slots__ = ("_custom", "_options", "_resolve")

    def __init__(self, options: SkillConfig | None = None, resolve: Callable[[str, str], str] | None = None) -> None:
        # A copy: the code of the client can change the original.
        self._options = SkillConfig().merged_over(options or SkillConfig())
        self._resolve = resolve
        # By the part of the key after the prefix. The agent's code can read it in each turn.
        self._custom = self._options.family(_USER)

    @overload
    def get(self, option: Option[T]) -> T: ...
    @overload
    def get(self, option: str, default: Any = ...) -> Any: ...
    def get(self, option: Option[Any] | str, default: Any = _REQUIRED) -> Any:
        """Return the value of an option.

        Args:
            option: A constant of :class:`SkillOptions`, or a key such as ``"skills.user.tenant-limit"``.
            default: The result if the job does not set the custom key. Other options have their own defaults.

        Returns:
            The value: seconds for a duration, bytes for a size. The value of a custom key is a string, with
            ``${env:NAME}`` and ``${file:/path}`` replaced. A list or mapping in a YAML file becomes JSON.

        Raises:
            UnknownNameError: The option does not exist, or a custom key is not set and no default is passed.
            ConfigError: A reference in the value cannot be resolved on this machine.

        Example:
            >>> limit = int(ctx.config.get("skills.user.tenant-limit", default="5"))
        """
        key = option.key if isinstance(option, Option) else option
        if not isinstance(key, str) or not key.startswith(_USER.prefix):
            return self._options.get(option)
        custom = self._custom
        name = key[len(_USER.prefix) :]
        if name in custom:
            return custom[name] if self._resolve is None else self._resolve(key, custom[name])
        if default is _REQUIRED:
            advice = "" if custom else "set it in the options of the job, or pass default="
            keys = [_USER.prefix + name for name in custom]
            raise UnknownNameError("option", key, keys, place="the options of the job", advice=advice)
        return default


#: The default options.
NO_OPTIONS = JobConfig()
