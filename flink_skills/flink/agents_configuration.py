"""The options of a job: from ``config.yaml``, ``-D`` and code, in this order; the last one wins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

import yaml

from flink_skills.agents.declare.resource import SOURCE_OPTIONS, source_strings
from flink_skills.errors import ConfigError, SkillsError, near_misses
from flink_skills.options import Option, SkillConfig, SkillOptions


class FixedAttributes:
    """Rejects attributes that nothing reads. Subclasses of users have what attributes they want.

    Attributes that start with an underscore, and those with an annotation in the class, can be set.
    """

    @classmethod
    @abstractmethod
    def advice_of(cls, name: str) -> str:
        """Return what to do instead of setting the attribute ``name``."""

    if not TYPE_CHECKING:  # a type checker finds these attributes itself

        def __setattr__(self, name: str, value: Any) -> None:
            cls = type(self)
            is_own = cls.__module__.partition(".")[0] == __name__.partition(".")[0]
            if is_own and not name.startswith("_") and name not in cls.__annotations__:
                raise ConfigError(f"{cls.__name__}.{name} cannot be set: {self.advice_of(name)}")
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> Any:
            public = [known for known in dir(type(self)) if not known.startswith("_")]
            near = near_misses(name, public) if not name.startswith("_") else []
            meant = f": did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{meant}")


T = TypeVar("T")
_PREFIX = "skills."


class AgentsConfiguration(FixedAttributes):
    """The job's options, as ``agents_env.get_config()`` gives them. What is set here wins over Flink's configuration.

    >>> config = AgentsConfiguration({"skills.turn.timeout": "1 min"})
    >>> config.set(SkillOptions.TURN_TIMEOUT, "2 min").get(SkillOptions.TURN_TIMEOUT)
    120.0
    """

    def __init__(self, from_flink: Mapping[str, str] | None = None) -> None:
        self._base = read_flink_options(from_flink or {})
        self._set = SkillConfig()
        self._agent = ""
        # The options of Flink's configurations when the first agent was compiled.
        self._seen: tuple[dict[str, Any], ...] | None = None

    def read_flink(self, values: Mapping[str, str]) -> None:
        """Read Flink's configuration from ``values``. Raises :class:`ConfigError` that lists all problems."""
        self._base = read_flink_options(values)

    def check_flink(self, env: Mapping[str, str], t_env: Mapping[str, str]) -> None:
        """Check that options have the values that they had when the first agent was compiled.

        Args:
            env: The values in the configuration of the client and of the environment for streams.
            t_env: Those in the configuration of the environment for tables. Flink copies them to the other one.

        Raises:
            ConfigError: An option was changed.
        """
        now = tuple(read_flink_options(values).to_json() for values in (env, t_env))
        if not self._agent or self._seen is None:
            self._seen = now
            return
        used = self._base.to_json()
        for values, before in zip(now, self._seen, strict=True):
            for key in sorted({*values, *before}):
                if values.get(key) not in (before.get(key), used.get(key)):
                    self.check_open(f"option {key} in Flink's configuration")

    @property
    def is_open(self) -> bool:
        """True until the first agent of the job is compiled."""
        return not self._agent

    @classmethod
    def advice_of(cls, name: str) -> str:
        near = near_misses(name.replace("_", "-"), [option.key for option in SkillOptions.all()])
        return f"set an option with set({near[0] if near else 'skills.turn.timeout'!r}, …)"

    def set(self, option: Option[Any] | str, value: object) -> AgentsConfiguration:
        """Set an option (a constant of :class:`SkillOptions` or a key); chainable.

        Raises :class:`ConfigError` for a value that cannot be used and after ``apply``, and :class:`UnknownNameError`
        for an unknown key.
        """
        key = option.key if isinstance(option, Option) else str(option)
        self.check_open(f"option {key}")
        self._set.set(option, _option_value(key, value))
        return self

    @overload
    def get(self, option: Option[T]) -> T: ...
    @overload
    def get(self, option: str) -> Any: ...
    def get(self, option: Option[Any] | str) -> Any:
        """Return the value that the job uses."""
        return self.effective().get(option)

    def check_open(self, what: str) -> None:
        """Raise :class:`ConfigError` if an agent of the job is compiled, because ``what`` would not reach it."""
        if self._agent:
            raise ConfigError(
                f"{what}: agent {self._agent} is compiled already and would not have it; set options and add "
                "skills and resources before the first apply"
            )

    def close(self, agent: str) -> None:
        """Accept no more options: ``agent`` is compiled with those there are."""
        self._agent = self._agent or agent

    def effective(self) -> SkillConfig:
        """All values, code over Flink's configuration."""
        return self._set.merged_over(self._base)


def read_flink_options(values: Mapping[str, str]) -> SkillConfig:
    """Return the ``skills.*`` options among Flink's. Raises :class:`ConfigError` that lists all problems."""
    config = SkillConfig()
    problems = []
    for key, value in sorted(values.items()):
        if not key.startswith(_PREFIX):
            continue
        try:
            config.set(key, _option_value(key, value))
        except SkillsError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("in Flink's configuration: " + "; ".join(problems))
    return config


def _option_value(key: str, value: object) -> object:
    """Return the value of an option that lists sources, with each item as a string, and any other value unchanged.

    Items can be mappings with pins. ``config.yaml`` passes a list as YAML in a string. Raises
    :class:`ConfigError`.
    """
    if key in SOURCE_OPTIONS and isinstance(value, str) and value.strip().startswith("["):
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            # Neither the text nor the parser's message: both may hold a credential.
            raise ConfigError(
                f"option {key}: the value is not a YAML list; write one such as ['/opt/skills']"
            ) from None
    try:
        return source_strings(key, value)
    except ConfigError as error:
        raise ConfigError(f"option {key}: {error}") from error


def table_values(t_env: Any) -> dict[str, str]:
    """Return the configuration of the environment for tables as text by key. It is empty for None."""
    return {} if t_env is None else dict(t_env.get_config().get_configuration().to_dict())


def flink_values(env: Any, t_env: Any) -> dict[str, str]:
    """Return Flink's configuration as text by key: the client's ``config.yaml``, then what the environments have.

    It is empty if both environments are None.
    """
    if env is None and t_env is None:
        return {}
    from pyflink.java_gateway import get_gateway

    from flink_skills.flink.bridge import configuration_of

    jvm = get_gateway().jvm
    found = dict(jvm.org.apache.flink.configuration.GlobalConfiguration.loadConfiguration().toMap())
    found.update(table_values(t_env))
    if env is not None:
        found.update(configuration_of(env).to_dict())
    return found
