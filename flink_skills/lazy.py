"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_names"]

_ADVICE = "flink_skills.other_frameworks"


def lazy_names(
    package: str, homes: Mapping[str, str], *, advised: bool = False
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of ``package``, whose public names live in the modules ``homes``.

    ``homes`` has the module of each name, relative to the package. An import of the package then costs nothing that a
    program does not need, such as a model client or Flink. No name may be that of a module of the package. With
    ``advised``, importing a name of another framework raises an :class:`ImportError` that says what to use in its
    place, by :data:`flink_skills.other_frameworks.IMPORTS`.

    >>> __getattr__, __dir__ = lazy_names(__name__, {"OpenAgent": "open_agent"})
    """

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            other = importlib.import_module(_ADVICE).IMPORTS.get(name) if advised else None
            if other is not None:
                # An AttributeError would reach the program as an ImportError without the advice.
                raise ImportError(f"{package} has no {name}: {other}", name=name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names
