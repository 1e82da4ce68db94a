"""Read-only options for the code that runs in a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from flink_skills.errors import UnknownNameError
from flink_skills.options.catalog import SkillOptions
from flink_skills.options.config import SkillConfig
from flink_skills.options.option import Option

__all__ = ["NO_OPTIONS", "JobConfig"]

T = TypeVar("T")
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
