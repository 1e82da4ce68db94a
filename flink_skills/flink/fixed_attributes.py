"""Objects of a job whose attributes users cannot add or misspell."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from flink_skills.errors import ConfigError, near_misses

__all__ = ["FixedAttributes"]


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
